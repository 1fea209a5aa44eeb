"""A Messages client in tests of providers that forward Messages requests, and what it sends."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.api.conftest import Client
from tests.api.endpoints.test_messages import asked, events

LONG = {"type": "ephemeral", "ttl": "1h"}
#: The content of an answer, as a client sends it back.
THINKING = [
    {"type": "thinking", "thinking": "Hm.\u00e9 ", "signature": "c2lnbmF0dXJl+/="},
    {"type": "redacted_thinking", "data": "ZGF0YQ=="},
    {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"port": "Brest", "deep": {"b": 1, "a": 2.50}}},
]
TIDE = {"name": "tide", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}


async def stream(client: Client, **fields: Any) -> tuple[aiohttp.ClientResponse, list[tuple[str, Any]], bytes]:
    """The response of a streamed call, its events, and its bytes."""
    text = b""
    async with client.request("POST", "/v1/messages", json=asked(stream=True, **fields)) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            pass  # it was cut
    return response, events(text.decode()) if response.status == 200 else [], text

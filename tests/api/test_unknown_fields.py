"""Fields that the gateway does not know reach an upstream only if its preset or its operator names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream
from tests.api.conftest import Client

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "embeddings": ("/v1/embeddings", {"input": "Hi"}),
    "images": ("/v1/images/generations", {"prompt": "Hi"}),
    "moderation": ("/v1/moderations", {"input": "Hi"}),
    "rerank": ("/v1/rerank", {"query": "Hi", "documents": ["Hi"]}),
    "speech": ("/v1/audio/speech", {"input": "Hi", "voice": "alloy"}),
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model on a server of OpenAI's dialect, and one on a server with a preset."""
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "plain": {"plugin": "openai", "base_url": upstream.base_url},
                "house": {"plugin": "openai", "preset": "vllm", "base_url": upstream.base_url},
            },
            "models": {
                name: {"provider": name, "free": True, "endpoints": list(REQUESTS)} for name in ("plain", "house")
            },
        },
        demo=True,
    )


async def sent(client: Client, upstream: FakeUpstream, endpoint: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """What the upstream got, and the fields that were dropped."""
    path, request = REQUESTS[endpoint]
    async with client.request("POST", path, json={**request, **fields}) as response:
        dropped = response.headers.get("x-gateway-dropped-params", "")
        await response.read()
    return upstream.seen[-1].json, dropped


@pytest.mark.holds("providers/openai.md#presets-1")
@pytest.mark.parametrize("endpoint", REQUESTS)
async def test_unknown_field_is_dropped_and_named(client: Client, upstream: FakeUpstream, endpoint: str) -> None:
    body, dropped = await sent(client, upstream, endpoint, model="plain", user="u", priority=-9)
    assert "priority" not in body
    assert dropped == "priority" or endpoint != "chat"  # the other answers of this upstream are no answers


async def test_fields_of_a_preset_are_forwarded_and_others_are_not(client: Client, upstream: FakeUpstream) -> None:
    body, dropped = await sent(client, upstream, "chat", model="house", top_k=5, priority=-9, best_of=20)
    assert body["top_k"] == 5
    assert not {"priority", "best_of"} & body.keys()
    assert dropped == "priority,best_of"

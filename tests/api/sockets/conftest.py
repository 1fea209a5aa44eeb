"""A gateway with WebSocket on, and clients of another maker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from gateway.config.settings import Settings, WebSocketSettings
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO

PATH = "/v1/responses"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The same with WebSocket switched on."""
    websocket = WebSocketSettings(responses=True, max_per_account=8, max_per_address=9)
    return structs.replace(settings, server=structs.replace(settings.server, websocket=websocket))


class Socket:
    """One socket of a client."""

    def __init__(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        self.wire = wire

    async def send(self, **fields: Any) -> None:
        """Send a request; `type` may be another one."""
        await self.wire.send_str(json.dumps({"type": "response.create", "model": "m1", "input": "Hi", **fields}))

    async def event(self) -> dict[str, Any]:
        """The next event."""
        message = await self.wire.receive(timeout=20)
        assert message.type is aiohttp.WSMsgType.TEXT, (message, self.wire.close_code)
        event: dict[str, Any] = json.loads(message.data)
        return event

    async def answer(self) -> list[dict[str, Any]]:
        """The events up to the last one of an answer."""
        events = [await self.event()]
        while events[-1]["type"] not in ("response.completed", "response.incomplete", "response.failed", "error"):
            events.append(await self.event())
        return events

    async def ask(self, **fields: Any) -> list[dict[str, Any]]:
        """The events of the answer to a request."""
        await self.send(**fields)
        return await self.answer()

    async def closed(self) -> int | None:
        """The code with which the gateway closes."""
        message = await self.wire.receive(timeout=20)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
        return self.wire.close_code


@asynccontextmanager
async def opened(client: Client, path: str = PATH, **headers: str) -> AsyncIterator[Socket]:
    """An open socket."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(client.base_url + path, headers={**client.headers, **headers}) as wire,
    ):
        yield Socket(wire)


def answers(upstream: FakeUpstream, count: int = 1) -> None:
    """Let the upstream answer so many streams with "Hello"."""
    upstream.enqueue(*(Reply.stream(HELLO) for _ in range(count)))

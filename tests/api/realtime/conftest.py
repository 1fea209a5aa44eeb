"""A gateway with realtime models, clients of another maker, and an upstream that does what a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tornado.ioloop import IOLoop
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from gateway.billing.call_record import CallRecord
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Hold
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client

PATH = "/v1/realtime?model=rt"
UPSTREAM_KEY = "sk-upstream-canary-0123456789"
#: What a silent upstream of OpenAI's dialect says first.
SESSION = {"type": "session.created", "event_id": "event_1", "session": {"id": "sess_1", "model": "upstream-rt"}}
PRICE = {"input": 4, "output": 16, "audio_input": 32, "audio_output": 64, "cached_input": Decimal("0.4")}


class RealtimeUpstream:
    """A server of the dialect: `answer` gets each connection, after `session.created`."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.sockets: list[ServerConnection] = []
        self.refusal: tuple[int, str] | None = None
        self.answer: Callable[[ServerConnection, dict[str, Any]], Any] | None = None
        self.first: dict[str, Any] | None = SESSION
        self.url = ""
        self._server: Server | None = None

    async def start(self) -> None:
        self._server = await serve(self._serve, "127.0.0.1", 0, process_request=self._process, max_size=2**25)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def _process(self, connection: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        self.headers.append(dict(request.headers.raw_items()))
        if self.refusal is None:
            return None
        response = connection.respond(self.refusal[0], self.refusal[1])
        response.headers["Retry-After"] = "7"
        return response

    async def _serve(self, socket: ServerConnection) -> None:
        self.sockets.append(socket)
        try:
            if self.first is not None:
                await socket.send(json.dumps(self.first))
            async for text in socket:
                event = json.loads(text)
                self.received.append(event)
                if self.answer is not None:
                    await self.answer(socket, event)
        except ConnectionClosed:
            pass

    async def say(self, kind: str, **fields: Any) -> None:
        """Send an event on the newest socket."""
        await self.sockets[-1].send(json.dumps({"type": kind, "event_id": "event_x", **fields}))

    async def begin(self, response: str = "resp_1") -> None:
        await self.say("response.created", response={"id": response, "status": "in_progress"})

    async def text(self, delta: str, response: str = "resp_1") -> None:
        await self.say("response.output_text.delta", response_id=response, delta=delta)

    async def done(self, response: str = "resp_1", status: str = "completed", **usage: Any) -> None:
        await self.say("response.done", response={"id": response, "status": status, "usage": usage or None})


@pytest.fixture
def vendor(io_loop: IOLoop) -> Iterator[RealtimeUpstream]:
    """The model provider's server."""
    server = RealtimeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, vendor: RealtimeUpstream) -> Settings:
    """`rt` on that server; `fake-…` on the fake provider."""
    model = {"endpoints": ["realtime"], "price": PRICE, "retries": 0, "context_window": 32_000}
    fake = {**model, "provider": "fake"}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "up": {
                    "plugin": "openai",
                    "base_url": vendor.url,
                    "api_key": UPSTREAM_KEY,
                    "forward_headers": ["x-team"],
                },
                "fake": {
                    "plugin": "fake",
                    "models": {
                        "slow": {"text": "one two three four five six seven eight", "interval": 0.05},
                        "endless": {"text": "again and again", "endless": True, "interval": 0.001},
                    },
                },
            },
            "groups": {"default": {}, "inner": {}},
            "models": {
                "rt": {**model, "provider": "up", "model": "upstream-rt", "aliases": ["rt-alias"]},
                "secret": {**model, "provider": "up", "model": "upstream-rt", "groups": ["inner"]},
                "chatty": {"provider": "fake", "price": {"input": 1, "output": 1}},
                "fake": fake,
                "slow": fake,
                "endless": fake,
            },
        },
        demo=True,
    )


class Talk:
    """A client's side of one socket."""

    def __init__(self, wire: ClientConnection) -> None:
        self.wire = wire

    async def send(self, kind: str, **fields: Any) -> None:
        await self.wire.send(json.dumps({"type": kind, **fields}))

    async def event(self) -> dict[str, Any]:
        async with asyncio.timeout(20):
            event: dict[str, Any] = json.loads(await self.wire.recv())
        return event

    async def until(self, kind: str) -> list[dict[str, Any]]:
        """The events up to the next one of that kind."""
        events = [await self.event()]
        while events[-1]["type"] != kind:
            events.append(await self.event())
        return events

    async def ask(self, text: str = "Hi there") -> list[dict[str, Any]]:
        """The events of a response to a text."""
        content = [{"type": "input_text", "text": text}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.send("response.create")
        return await self.until("response.done")

    async def closed(self) -> int | None:
        """The code of the close, after all events before it."""
        try:
            while True:
                await self.event()
        except ConnectionClosed:
            return self.wire.close_code


@asynccontextmanager
async def talking(client: Client, path: str = PATH, **options: Any) -> AsyncIterator[Talk]:
    """An open session; `session.created` is read already."""
    url = client.base_url.replace("http", "ws", 1) + path
    options = {"additional_headers": client.headers, "max_size": 2**25, "compression": None, **options}
    async with connect(url, **options) as wire:
        talk = Talk(wire)
        await talk.until("session.created")
        yield talk


@pytest.fixture
def records(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> list[CallRecord]:
    """The record of each call, as it is booked."""
    booked: list[CallRecord] = []
    book = gateway.ledger.book

    def noted(hold: Hold, record: CallRecord | None, *, free: bool = False) -> None:
        assert record is not None
        booked.append(record)
        book(hold, record, free=free)

    monkeypatch.setattr(gateway.ledger, "book", noted)
    return booked


def counts(text: int, audio: int, out_text: int, out_audio: int) -> dict[str, Any]:
    """A usage as vendors send it."""
    return {
        "total_tokens": text + audio + out_text + out_audio,
        "input_tokens": text + audio,
        "output_tokens": out_text + out_audio,
        "input_token_details": {"text_tokens": text, "audio_tokens": audio, "cached_tokens": 0},
        "output_token_details": {"text_tokens": out_text, "audio_tokens": out_audio},
    }


def cost(text: int, audio: int, out_text: int, out_audio: int) -> int:
    """What such a usage costs at `PRICE`, in nano units."""
    return 1000 * (4 * text + 32 * audio + 16 * out_text + 64 * out_audio)

"""Callers of a gateway whose models live on a `FakeUpstream`: streams, whole answers, and what became of each.

Every call has a name of its own, which it sends as `user`: by it the upstream's log tells what was delivered to whom.
One chunk of a stream is one token, and a token costs `PER_TOKEN`, so a charge is a number of chunks.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from msgspec import structs

from gateway.testing import FakeUpstream, Reply
from tests.processes.served import Served

PER_TOKEN = 1000  # nano-units
CHUNK = "abc "  # four ASCII characters: one token by estimate, too
MODELS = """
[providers.up]
plugin = "openai"
base_url = "{url}"

[models.m]
provider = "up"
price = {{ input = 0, output = 1 }}
default_reserve_output = 500
"""


class Call:
    """One call, as its caller saw it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stream = True
        self.status = 0
        self.request_id = ""
        self.chunks = 0
        self.whole = False
        self.failure = ""
        self.started = time.monotonic()
        self.answered = 0.0  # when its status was there
        self.ended = 0.0

    @property
    def waited(self) -> float:
        """Seconds until its status."""
        return self.answered - self.started

    @property
    def answered_well(self) -> bool:
        return self.status == 200 and self.whole

    def __repr__(self) -> str:
        seconds = f"{self.started:.2f} +{self.ended - self.started:.2f}"
        return f"<{self.name} {self.status} {self.chunks} whole={self.whole} {self.failure} {seconds}>"


class Traffic:
    """Makes calls; `calls` are all of them."""

    def __init__(self, gateway: Served, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.calls: list[Call] = []
        self.tag = ""  # of each call, with its name; `server.tags` must have it
        self._session = session
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = False

    def body(self, call: Call, chunks: int, *, stream: bool = True) -> dict[str, Any]:
        """The request for so many chunks."""
        messages = [{"role": "user", "content": CHUNK * chunks}]
        tags = {"metadata": {self.tag: call.name}} if self.tag else {}
        return {"model": "m", "user": call.name, "messages": messages, "stream": stream, **tags}

    def new(self) -> Call:
        """A call that somebody else will make."""
        call = Call("call-" + secrets.token_hex(8))
        self.calls.append(call)
        return call

    async def make(self, chunks: int, *, stream: bool = True, key: str = "") -> Call:
        """One call, to its end."""
        call = self.new()
        call.stream = stream
        headers = {"Authorization": f"Bearer {key or self.gateway.api_key}"}
        url = f"{self.gateway.base_url}/chat/completions"
        try:
            async with self._session.post(
                url, json=self.body(call, chunks, stream=stream), headers=headers
            ) as response:
                call.answered = time.monotonic()
                call.status = response.status
                call.request_id = response.headers.get("x-request-id", "")
                call.failure = "" if response.status == 200 else (await response.text())[:200]
                if stream and response.status == 200:
                    await self._read(call, response)
                else:
                    await response.read()
                    call.whole = True
        except (aiohttp.ClientError, OSError) as error:
            call.failure = call.failure or repr(error)
        finally:
            call.ended = time.monotonic()
        return call

    async def _read(self, call: Call, response: aiohttp.ClientResponse) -> None:
        tail = b""
        async for part in response.content.iter_any():
            data = tail + part
            events, _, tail = data.rpartition(b"\n\n")
            call.chunks += events.count(b'"content":"' + CHUNK.encode())
            call.whole = call.whole or b"data: [DONE]" in events
            if b'"error"' in events:
                call.failure = events.decode()[-300:]

    def keep(self, count: int, chunks: int, *, stream: bool = True, pause: float = 0.0, key: str = "") -> None:
        """So many callers, each calling again as soon as it was answered, until `ended`."""

        async def calling() -> None:
            while not self._over:
                await self.make(chunks, stream=stream, key=key)
                await asyncio.sleep(pause)

        for _ in range(count):
            task = asyncio.create_task(calling())
            self._tasks.add(task)

    async def ended(self) -> None:
        """No more calls, and those that run are over."""
        self._over = True
        await asyncio.gather(*self._tasks)
        self._tasks.clear()

    @property
    def running(self) -> int:
        """Streams that flow."""
        return sum(not call.ended and call.chunks > 0 for call in self.calls)


def paced(upstream: FakeUpstream, interval: float) -> None:
    """Let every stream take its time."""
    upstream.tamper = lambda reply: _slower(reply, interval)


def _slower(reply: Reply, interval: float) -> Reply:
    return reply if reply.frames is None else structs.replace(reply, interval=interval)


@asynccontextmanager
async def traffic_on(gateway: Served, *, keep_alive: bool = False) -> AsyncIterator[Traffic]:
    """Callers; without `keep_alive` every call has a connection of its own, which the kernel gives to any worker."""
    connector = aiohttp.TCPConnector(limit=0, force_close=not keep_alive)
    timeout = aiohttp.ClientTimeout(total=180.0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Traffic(gateway, session)


def percentile(values: list[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

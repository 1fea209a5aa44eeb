"""What one worker learned of a target's health, told to every other worker and to `gateway models --health`.

Transitions only: a field per open place in one hash of the store, and a message on a channel. A worker that starts, or
that lost the channel, reads the hash. Sharp edge: this is news, not truth; without the store every worker finds out by
itself, and nothing of it is on the path of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING

import msgspec
import redis.exceptions
from msgspec import Struct

from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.routing.circuit_breaker import Circuit, Place
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.store.link import RedisReplyError

if TYPE_CHECKING:
    from gateway.store import Store

HASH = "health"
CHANNEL = "gateway:health"
LISTEN_AGAIN = 1.0  # seconds after the channel broke
FORGOTTEN_AFTER = 3600  # seconds without news: whoever was left alone has been probed by then, or nobody asks for it


class CircuitEvent(Struct, frozen=True, omit_defaults=True):
    """A circuit that opened, or closed where `cause` is empty."""

    worker: str
    provider: str
    credential: int = -1
    model: str = ""
    cause: str = ""
    seconds: float = 0.0  # how long it stays open, from `at` on
    at: float = 0.0  # Unix seconds

    @property
    def place(self) -> Place:
        """Whose news it is."""
        return Place(self.provider, self.credential, self.model)

    def left(self, now: float) -> float:
        """Seconds until it may be called again."""
        return min(self.seconds, self.at + self.seconds - now)  # another machine's clock may be behind


_decoder = msgspec.json.Decoder(CircuitEvent)


class CircuitSync:
    """One worker's part in it."""

    def __init__(self, health: CircuitRegistry, store: Store) -> None:
        self._health = health
        self._store = store
        self.listening = False  # whether news of the others arrive
        self._me = secrets.token_hex(8)
        self._tasks: set[asyncio.Task[None]] = set()
        health.on_event = self._tell

    def start(self) -> None:
        """Begin to listen."""
        self._keep(self._listen_forever())

    async def close(self) -> None:
        """Stop."""
        self._health.on_event = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _tell(self, circuit: Circuit) -> None:
        place, cause = circuit.place, circuit.cause or ""
        seconds = max(0.0, circuit.until - time.monotonic()) if cause else 0.0
        on_event = CircuitEvent(self._me, place.provider, place.credential, place.model, cause, seconds, time.time())
        self._keep(self._publish(on_event))

    async def _publish(self, on_event: CircuitEvent) -> None:
        link, text = self._store.link(HASH), msgspec.json.encode(on_event)
        with contextlib.suppress(GatewayError, RedisReplyError):  # without the store the others find out by themselves
            if on_event.cause:
                await link.call("HSET", HASH, str(on_event.place), text)
                await link.call("EXPIRE", HASH, str(FORGOTTEN_AFTER))
            else:
                await link.call("HDEL", HASH, str(on_event.place))
            await link.call("PUBLISH", CHANNEL, text)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen_forever(self) -> None:
        while True:
            with contextlib.suppress(redis.exceptions.RedisError, OSError, GatewayError, RedisReplyError):
                await self._listen()
            self.listening = False
            await asyncio.sleep(LISTEN_AGAIN)

    async def _listen(self) -> None:
        async with self._store.channel(CHANNEL) as channel:
            while True:
                message = await channel.message(within=5.0)
                if message is None:
                    continue
                if message["type"] == "subscribe":  # from here on nothing is missed
                    for on_event in await read_news(self._store):
                        self._hear(on_event)
                    self.listening = True
                else:
                    for on_event in _understood([message["data"]]):
                        self._hear(on_event)

    def _hear(self, on_event: CircuitEvent) -> None:
        if on_event.worker == self._me:
            return
        left = on_event.left(time.time())
        gateway_log.debug("another worker says of %s: %s for %.0f s", on_event.place, on_event.cause or "well", left)
        if not on_event.cause or left > 0:
            self._health.apply_remote(on_event.place, on_event.cause, left)


async def read_news(store: Store) -> list[CircuitEvent]:
    """What is open at present, by what the workers told; places whose time is over await their probe."""
    fields = await store.link(HASH).call("HGETALL", HASH)
    return _understood(fields.values())


def _understood(texts: Iterable[bytes]) -> list[CircuitEvent]:
    """The news among them: workers of another release may tell what this one has no word for."""
    found = []
    for text in texts:
        with contextlib.suppress(msgspec.MsgspecError):
            found.append(_decoder.decode(text))
    return found

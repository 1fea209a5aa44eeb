"""Shares circuit changes between workers and with `gateway models --health`.

Only changes are shared: a field per open circuit in one hash of the store, and a message on a channel. A worker that
starts, or that lost the channel, reads the hash. Sharp edge: the shared state may be old or absent. Without the store
every worker relies on its own circuits; no request waits for this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Coroutine, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.routing.circuit_breaker import Circuit, CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.store import Store

HASH = "health"
CHANNEL = "gateway:health"
EXPIRES_AFTER = 3600  # seconds after the last event: by then every open circuit has been probed, or gets no calls


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
    def key(self) -> CircuitKey:
        """The circuit that changed."""
        return CircuitKey(self.provider, self.credential, self.model)

    def left(self, now: float) -> float:
        """Seconds until the circuit may be probed."""
        return min(self.seconds, self.at + self.seconds - now)  # another machine's clock may be slow


_decoder = msgspec.json.Decoder(CircuitEvent)


class CircuitSync:
    """Sends and receives the circuit changes of one worker."""

    def __init__(self, health: CircuitRegistry, store: Store) -> None:
        self._health = health
        self._store = store
        self.listening = False  # whether events of the other workers arrive
        self._me = secrets.token_hex(8)
        self._tasks: set[asyncio.Task[None]] = set()
        health.on_event = self._on_change

    def start(self) -> None:
        """Begin to listen."""
        self._keep(self._store.listen(CHANNEL, self._receive, lost=self._lost))

    async def close(self) -> None:
        """Stop."""
        self._health.on_event = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _on_change(self, circuit: Circuit) -> None:
        key, cause = circuit.key, circuit.cause or ""
        seconds = max(0.0, circuit.until - time.monotonic()) if cause else 0.0
        event = CircuitEvent(self._me, key.provider, key.credential, key.model, cause, seconds, time.time())
        self._keep(self._publish(event))

    async def _publish(self, event: CircuitEvent) -> None:
        link, text = self._store.link(HASH), msgspec.json.encode(event)
        # Without the store the other workers rely on their own circuits.
        with contextlib.suppress(GatewayError):
            if event.cause:
                await link.call("HSET", HASH, str(event.key), text)
                await link.call("EXPIRE", HASH, str(EXPIRES_AFTER))
            else:
                await link.call("HDEL", HASH, str(event.key))
            await link.call("PUBLISH", CHANNEL, text)

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":  # from here on no event is lost
            for event in await read_circuit_events(self._store):
                self._apply(event)
            self.listening = True
        else:
            for event in _decoded([message["data"]]):
                self._apply(event)

    def _lost(self) -> None:
        self.listening = False

    def _apply(self, event: CircuitEvent) -> None:
        if event.worker == self._me:
            return
        left = event.left(time.time())
        gateway_log.debug("event of another worker: %s: %s for %.0f s", event.key, event.cause or "closed", left)
        if not event.cause or left > 0:
            self._health.apply_remote(event.key, event.cause, left)


async def read_circuit_events(store: Store) -> list[CircuitEvent]:
    """The open circuits that the workers reported; those whose time is over wait for a probe."""
    fields = await store.link(HASH).call("HGETALL", HASH)
    return _decoded(fields.values())


def _decoded(texts: Iterable[bytes]) -> list[CircuitEvent]:
    """The events that this release can decode; workers of another release may send others."""
    found = []
    for text in texts:
        with contextlib.suppress(msgspec.MsgspecError):
            found.append(_decoder.decode(text))
    return found

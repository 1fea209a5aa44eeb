"""Shares circuit changes between workers and with `gateway models --health`.

Only changes are shared: a field per open circuit in one hash of the store, and a message on a channel. A worker that
starts, or that lost the channel, reads the hash. What the upstream said of a credential holds for all workers. Failures
hold for the workers of the same machine only: a machine that cannot reach an upstream says nothing about the others.
An outage that one account sees is a message only: nothing is kept of it.
What a worker reported ends with its lease: the time of its end, by the clock of the store, is a field of the same hash,
which the worker renews while circuits that it reported are open.
`request_probe` lets the next call probe open circuits: an event that has its cause still, and no seconds left.
Sharp edge: the shared state may be old or absent. Without the store every worker relies on its own circuits; no request
waits for this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.routing.circuit_breaker import SAID_BY_UPSTREAM, Circuit, CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.store import Store
from gateway.store.command import Script

HASH = "health"
CHANNEL = "gateway:health"
LEASE_FIELD = "lease:"  # and the worker's id: the field of its lease
EXPIRES_AFTER = 3600  # seconds without an event or a renewal; also how long reports of older releases count
LEASE = 30.0  # seconds for which what a worker reported counts without a renewal
RENEW_EVERY = 10.0  # seconds
LEAVE_WITHIN = 1.0  # seconds for the store to take back what a worker that stops has reported


class CircuitEvent(Struct, frozen=True, omit_defaults=True):
    """A circuit that opened, or closed where `cause` is empty."""

    worker: str
    provider: str
    credential: int = -1
    model: str = ""
    cause: str = ""
    seconds: float = 0.0  # how long it stays open, from `at` on; 0 with a cause: the next call probes it
    at: float = 0.0  # Unix seconds
    capability: str = ""
    machine: str = ""  # for whose workers it holds; empty: for all
    was: str = ""  # the cause of a circuit that closed
    leased: bool = False  # whether it ends with the lease of its worker; not for workers of older releases

    @property
    def key(self) -> CircuitKey:
        """The circuit that changed."""
        return CircuitKey(self.provider, self.credential, self.model, self.capability)

    @property
    def field(self) -> str:
        """Its field in the hash; each machine has its own failures."""
        return f"{self.key.field}@{self.machine}" if self.machine else self.key.field

    @property
    def is_due(self) -> bool:
        """Whether an operator has asked for a probe."""
        return bool(self.cause) and not self.seconds

    def left(self, now: float) -> float:
        """Seconds until the circuit may be probed."""
        return min(self.seconds, self.at + self.seconds - now)  # another machine's clock may be slow


class AccountOutage(Struct, frozen=True, omit_defaults=True):
    """A target fails the calls of one account, or answers again; workers of older releases cannot decode it."""

    sender: str
    outage: str  # the account
    provider: str
    credential: int
    model: str
    capability: str
    seconds: float  # until the next probe; 0: the target answers
    machine: str = ""  # for whose workers it holds; empty: for all


_decoder = msgspec.json.Decoder(CircuitEvent)
_outage_decoder = msgspec.json.Decoder(AccountOutage)
#: Replaces a field that is there still: a circuit that has closed meanwhile stays closed.
_REPLACE = Script(
    "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1"
)
#: Removes a field if it has this text still.
_REMOVE = Script(
    "if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end return redis.call('HDEL', KEYS[1], ARGV[1])"
)
#: Renews a lease, and sets a field if one is given.
_REPORT = Script(
    "redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', redis.call('TIME')[1] * 1000 + ARGV[2])) "
    "redis.call('EXPIRE', KEYS[1], ARGV[3]) "
    "if ARGV[4] then redis.call('HSET', KEYS[1], ARGV[4], ARGV[5]) end return 1"
)
#: The whole hash, and the moment at which it was read in ms.
_READ = Script("return {string.format('%.0f', redis.call('TIME')[1] * 1000), redis.call('HGETALL', KEYS[1])}")


class CircuitSync:
    """Sends and receives the circuit changes of one worker."""

    def __init__(self, health: CircuitRegistry, store: Store, *, machine: str = "") -> None:
        self._health = health
        self._machine = machine or secrets.token_hex(8)
        self._store = store
        self.listening = False  # whether events of the other workers arrive
        self._me = secrets.token_hex(8)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported: set[str] = set()  # fields of open circuits that this worker reported
        self._in_order = asyncio.Lock()  # an event must not overtake an older one of the same circuit
        health.on_event = self._on_change
        health.on_outage = self._on_outage

    def start(self) -> None:
        """Begin to listen."""
        self._keep(self._store.listen(CHANNEL, self._receive, lost=self._lost))
        self._keep(self._renew())

    async def close(self) -> None:
        """Stop, and end the lease."""
        self._health.on_event = self._health.on_outage = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._reported:
            with contextlib.suppress(GatewayError, TimeoutError):
                async with asyncio.timeout(LEAVE_WITHIN):
                    await self._store.link(HASH).call("HDEL", HASH, self._lease)

    def _on_change(self, circuit: Circuit) -> None:
        key, cause = circuit.key, circuit.cause or ""
        event = CircuitEvent(
            self._me,
            key.provider,
            key.credential,
            key.model,
            cause,
            max(0.0, circuit.until - time.monotonic()) if cause else 0.0,
            time.time(),
            key.capability,
            "" if circuit.for_all else self._machine,
            "" if cause else circuit.last_cause or "",
            leased=bool(cause),
        )
        self._keep(self._publish(event))

    async def _publish(self, event: CircuitEvent) -> None:
        link, text = self._store.link(HASH), msgspec.json.encode(event)
        # Without the store the other workers rely on their own circuits.
        async with self._in_order:
            with contextlib.suppress(GatewayError):
                if event.cause:
                    self._reported.add(event.field)
                    await self._report(event.field, text)
                else:
                    self._reported.discard(event.field)
                    await link.call("HDEL", HASH, event.field)
                await link.call("PUBLISH", CHANNEL, text)

    def _on_outage(self, key: CircuitKey, account: str, seconds: float, is_local: bool) -> None:
        names = (key.provider, key.credential, key.model, key.capability)
        event = AccountOutage(self._me, account, *names, seconds, self._machine if is_local else "")
        self._keep(self._tell(msgspec.json.encode(event)))

    async def _tell(self, text: bytes) -> None:
        async with self._in_order:
            with contextlib.suppress(GatewayError):
                await self._store.link(HASH).call("PUBLISH", CHANNEL, text)

    async def _renew(self) -> None:
        """Renew the lease while it is needed."""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            if self._reported:
                with contextlib.suppress(GatewayError):
                    await self._report()

    async def _report(self, *event: str | bytes) -> None:
        """Renew the lease; `event` is a field and its text."""
        args = [self._lease, int(LEASE * 1000), EXPIRES_AFTER, *event]
        await self._store.link(HASH).eval(_REPORT, [HASH], args)

    @property
    def _lease(self) -> str:
        return LEASE_FIELD + self._me

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":  # from here on no event is lost
            shared = await _read_shared(self._store)
            for event in shared.events:
                self._apply(event)
            await self._remove(shared.ended)
            self.listening = True
        elif (outage := _outage_in(message["data"])) is not None:
            if outage.sender != self._me and outage.machine in ("", self._machine):
                key = CircuitKey(outage.provider, outage.credential, outage.model, outage.capability)
                self._health.apply_outage(key, outage.outage, outage.seconds)
        else:
            for event in _decoded([message["data"]]):
                self._apply(event)

    async def _remove(self, fields: Mapping[str, bytes]) -> None:
        """Remove what workers that are gone have left: the hash itself expires only when nothing happens.

        A field that was written again since it was read stays.
        """
        for field, text in fields.items():
            await self._store.link(HASH).eval(_REMOVE, [HASH], [field, text])

    def _lost(self) -> None:
        self.listening = False

    def _apply(self, event: CircuitEvent) -> None:
        if not self._concerns(event):
            return
        if event.is_due:
            self._health.due(event.key)
            return
        if event.worker == self._me:
            return
        if not event.cause:
            self._reported.discard(event.field)
        left = event.left(time.time())
        gateway_log.debug("event of another worker: %s: %s for %.0f s", event.key, event.cause or "closed", left)
        if not event.cause or left > 0:
            self._health.apply_remote(event.key, event.cause, left, was=event.was)

    def _concerns(self, event: CircuitEvent) -> bool:
        """Whether it holds here; a worker of an older release names no machine and shares its failures, too."""
        if event.machine:
            return event.machine == self._machine
        return not event.cause or event.cause in SAID_BY_UPSTREAM


class _Shared(Struct, frozen=True):
    """The hash: the events that count, and the fields of what has ended."""

    events: list[CircuitEvent]
    ended: dict[str, bytes]  # with the texts that were read


async def read_circuit_events(store: Store) -> list[CircuitEvent]:
    """The open circuits that running workers reported; those whose time is over wait for a probe."""
    return (await _read_shared(store)).events


async def _read_shared(store: Store) -> _Shared:
    now, flat = await store.link(HASH).eval(_READ, [HASH], [])
    fields = {name.decode(errors="replace"): text for name, text in zip(flat[::2], flat[1::2], strict=True)}
    leases = {name: int(ends) for name, ends in fields.items() if name.startswith(LEASE_FIELD) and ends.isdigit()}
    ended = {name: fields[name] for name, ends in leases.items() if ends <= int(now)}
    oldest, events = time.time() - EXPIRES_AFTER, []
    for name, text in fields.items():
        for event in _decoded([text]):
            if event.leased:
                counts = leases.get(LEASE_FIELD + event.worker, 0) > int(now)
            else:
                counts = event.at + event.seconds >= oldest
            if counts:
                events.append(event)
            else:
                ended[name] = text
    return _Shared(events, ended)


async def request_probe(store: Store, targets: Collection[CircuitKey]) -> list[CircuitEvent]:
    """Let the next call of each worker probe the open circuits of these keys, of every capability and machine.

    Returns what the circuits were open for. A worker of an older release ignores the request.
    """
    now, link, found = time.time(), store.link(HASH), []
    for event in await read_circuit_events(store):
        if structs.replace(event.key, capability="") not in targets or event.left(now) <= 0:
            continue
        text = msgspec.json.encode(structs.replace(event, seconds=0.0, at=now))
        if await link.eval(_REPLACE, [HASH], [event.field, text]):
            await link.call("PUBLISH", CHANNEL, text)
            found.append(event)
    return found


def _outage_in(text: bytes) -> AccountOutage | None:
    """The event of an account's outage; None for any other."""
    with contextlib.suppress(ValueError, RecursionError):
        return _outage_decoder.decode(text)
    return None


def _decoded(texts: Iterable[bytes]) -> list[CircuitEvent]:
    """The events that this release can decode; workers of another release may send others."""
    found = []
    for text in texts:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(_decoder.decode(text))
    return found

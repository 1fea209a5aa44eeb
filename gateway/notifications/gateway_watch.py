"""Looks at what concerns the operator alone: circuits of all machines, this one's refused settlements and importer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from gateway.amounts import format_amount
from gateway.ledger.refused import RefusedFile, RefusedFileError
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.notifications.events import Condition
from gateway.notifications.notifier import Notifier
from gateway.notifications.queue import Queue
from gateway.routing.circuit_sync import CircuitEvent, read_circuit_events
from gateway.store import Store

REFUSALS = frozenset({"credential", "credit"})
USUAL_LAG = 5.0  # seconds; with no more than this the importer is not late
MORE_EVERY = 300.0  # seconds between two events of refused settlements while their number grows
FAILURES = frozenset({"failures", "plugin"})  # "limited" is not among them: the provider works, but slower


class RefusedSettlements(Struct, frozen=True):
    """What is in refused.jsonl: its entries, and their cost in nano-units."""

    count: int = 0
    amount: int = 0


class RefusedWatch:
    """The file of this machine; it is read only after a change."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        self._file = RefusedFile(folder)
        self._metrics = metrics
        self._stamps: list[tuple[str, int, int]] = []
        self.found = RefusedSettlements()

    async def look(self) -> None:
        """Read the file if it has changed, and set the metric."""
        try:
            await asyncio.to_thread(self._look)
        except (OSError, RefusedFileError) as error:
            gateway_log.error("refused settlements cannot be counted: %s", error)
        self._metrics.set("gateway_refused_settlements", (), float(self.found.count))

    def _look(self) -> None:
        stamps = []
        for path in sorted(self._file.folder.glob("refused*.jsonl")):
            status = path.stat()
            stamps.append((path.name, status.st_ino, status.st_size))
        if stamps != self._stamps:
            entries = self._file.read()
            self.found = RefusedSettlements(len(entries), -sum(entry.amount for entry in entries))
            self._stamps = stamps


class GatewayWatch:
    """The conditions of the gateway."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        notifier: Notifier,
        refused: RefusedWatch,
        *,
        lag: Callable[[], float | None],
        most_lag: float,
        machine: str,
    ) -> None:
        self._store = store
        self._queue = queue
        self._notifier = notifier
        self._refused = refused
        self._lag = lag
        self._most_lag = most_lag
        self._machine = machine
        self._reported, self._reported_at = RefusedSettlements(), 0.0

    async def step(self) -> None:
        """Look at everything. StoreUnavailable."""
        conditions = [*await self._circuits(), self._set_aside()]
        if (behind := self._behind()) is not None:
            conditions.append(behind)
        await self._notifier.report(conditions)

    async def _circuits(self) -> list[Condition]:
        """The circuits that are open on any machine, and those that were."""
        found: dict[tuple[str, str], Condition] = {}
        for event in await read_circuit_events(self._store):
            if (condition := _circuit(event)) is not None:
                found.setdefault((condition.type, condition.subject), condition)
        for type_ in ("circuit.opened", "credential.refused"):
            for subject in await self._queue.subjects(type_):
                found.setdefault((type_, subject), Condition(type_, subject, 0, {}))
        return list(found.values())

    def _set_aside(self) -> Condition:
        """A higher number of refused settlements is a higher level, and an event of its own; fewer are not."""
        found, now = self._refused.found, time.monotonic()
        if found.count > self._reported.count > 0 and now - self._reported_at < MORE_EVERY:
            found = self._reported
        elif found.count != self._reported.count:
            self._reported, self._reported_at = found, now
        data = {
            "machine": socket.gethostname(),
            "settlements": found.count,
            "amount": format_amount(found.amount),
        }
        return Condition("settlement.set_aside", self._machine, found.count, data)

    def _behind(self) -> Condition | None:
        """None while another machine imports, and while the importer is late but not too late.

        An importer that has just started is late by the time that it has been failing for.
        """
        lag = self._lag()
        if lag is None or USUAL_LAG < lag < self._most_lag:
            return None
        return Condition("importer.behind", "importer", int(lag >= self._most_lag), {"seconds": int(lag)})


def _circuit(event: CircuitEvent) -> Condition | None:
    if event.cause in REFUSALS:
        subject = f"{event.provider}/{event.credential}"
        data = {"provider": event.provider, "credential": event.key.number, "cause": event.cause}
        return Condition("credential.refused", subject, 1, data)
    if event.cause in FAILURES:
        data = {
            "provider": event.provider,
            "credential": event.key.number,
            "model": event.model or None,
            "cause": event.cause,
        }
        return Condition("circuit.opened", f"{event.provider}/{event.credential}/{event.model}", 1, data)
    return None

"""Looks at the gateway every few seconds, and keeps what needs an operator, for pages that must not wait for anything.

`AttentionWatch.run` looks until it is cancelled. A page reads `findings`, `alerts` and `circuits`. Without the store
they are what was known before, with a finding that says so. A finding ends after it was absent twice, because another
console may have looked a moment before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from msgspec import structs

from gateway.admin.machines import KnownMachines
from gateway.attention import alerts as shared
from gateway.attention.alerts import Alert, OpenFinding
from gateway.attention.audit_findings import read_audits
from gateway.attention.dismissals import dismiss, field_of, read_dismissals
from gateway.attention.finding import AuditFindings, Finding, Observed
from gateway.attention.rules import findings_of
from gateway.attention.stored_facts import StoredFacts
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.routing.circuit_sync import CircuitEvent, read_circuit_events
from gateway.store import Store

EVERY = 10.0  # seconds
FACTS_EVERY = 60.0  # seconds between two looks at the database

ReadFacts = Callable[[], Awaitable[StoredFacts]]


class AttentionWatch:
    """What one console knows. `read_facts` reads the database; GatewayError."""

    def __init__(
        self,
        store: Store,
        machines: KnownMachines,
        settings: Callable[[], Settings],
        read_facts: ReadFacts,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._store = store
        self._machines = machines
        self._settings = settings
        self._read_facts = read_facts
        self.findings: list[Finding] = []
        self.alerts: list[Alert] = []  # the newest first
        self.circuits: list[CircuitEvent] = []  # that are open
        self._audits: list[AuditFindings] = []
        self._dismissed: dict[str, float] = {}
        self._facts = StoredFacts()
        self._facts_at = float("-inf")
        self._store_answers = self._database_answers = True
        self._seen: dict[str, float] = {}  # since when, by id, as this console has found it
        self._absent: set[str] = set()  # of the shared ones, at the last look

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self.refresh()
            except Exception as error:
                # A task of its own: a bug in a rule must not end the watch, or the console.
                gateway_log.error("the console cannot find what needs an operator", exc_info=error)
            await asyncio.sleep(EVERY)

    async def refresh(self) -> None:
        """Look once."""
        await self._machines.refresh()
        await self._look_at_store()
        await self._look_at_database()
        found = findings_of(self._observed())
        now = self._clock()
        self._seen = {one.id: self._seen.get(one.id, now) for one in found}
        lasting = [structs.replace(one, since=self._seen[one.id]) for one in found]
        lasting = [one for one in lasting if now - one.since >= one.after]
        try:
            self.findings = await self._share(lasting)
            self.alerts = await shared.read_alerts(self._store)
        except GatewayError:
            self.findings = lasting

    def shown_to(self, user: str) -> list[Finding]:
        """The findings that a user has not dismissed."""
        now = self._clock()
        return [one for one in self.findings if self._dismissed.get(field_of(user, one), 0.0) <= now]

    async def dismiss(self, user: str, id_: str, seconds: float) -> bool:
        """Do not show a finding to a user for so long; False if there is none. GatewayError."""
        finding = next((one for one in self.findings if one.id == id_), None)
        if finding is None:
            return False
        name, until = await dismiss(self._store, user, finding, seconds, now=self._clock())
        self._dismissed[name] = until
        return True

    async def _look_at_store(self) -> None:
        try:
            self.circuits = await read_circuit_events(self._store)
            self._audits = await read_audits(self._store)
            self._dismissed = await read_dismissals(self._store)
        except GatewayError:
            self._store_answers = False
        else:
            self._store_answers = True

    async def _look_at_database(self) -> None:
        now = time.monotonic()
        if self._database_answers and now - self._facts_at < FACTS_EVERY:
            return
        self._facts_at = now
        try:
            self._facts = await self._read_facts()
        except GatewayError:
            self._database_answers = False
        else:
            self._database_answers = True

    def _observed(self) -> Observed:
        return Observed(
            settings=self._settings(),
            today=datetime.now(UTC).date(),
            machines=self._machines.found,
            circuits=self.circuits,
            store_answers=self._store_answers,
            database_answers=self._database_answers,
            tokens=self._facts.tokens,
            superseded=self._facts.superseded,
            audits=self._audits,
        )

    async def _share(self, found: list[Finding]) -> list[Finding]:
        """Report what began and ended; returns the findings with the time since when any console knows them."""
        known = await shared.read_open(self._store)
        for one in found:
            if one.id not in known:
                await shared.report_begun(self._store, one)
        await self._end(known, {one.id for one in found})
        return [structs.replace(one, since=known[one.id].since) if one.id in known else one for one in found]

    async def _end(self, known: dict[str, OpenFinding], found: set[str]) -> None:
        absent = known.keys() - found - self._seen.keys()
        for id_ in absent & self._absent:
            await shared.report_ended(self._store, id_, known[id_], self._clock())
        self._absent = set(absent)

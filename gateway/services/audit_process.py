"""A process that audits pages of accounts for a command, see `audit_processes`: `python -m` this module."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from functools import partial
from typing import BinaryIO

import msgspec

from gateway.database.engine import Database
from gateway.history.audit import HistoryPages
from gateway.history.sql_thread import SqlThread
from gateway.ledger import AuditReport
from gateway.ledger.auditing.pages import AuditPage, Part
from gateway.ledger.auditing.store import StorePages
from gateway.ledger.scripts import Scripts
from gateway.services.audit_processes import AuditJob, AuditPlace
from gateway.services.ledger_audit import unreadable_fields
from gateway.store import Store
from gateway.store.identity import StoreGuard
from gateway.store.store import LONG_TIMEOUT


async def serve(jobs: BinaryIO, reports: BinaryIO) -> None:
    """Answer each job until there are no more. What fails ends the process."""
    place = AuditPlace.read(await asyncio.to_thread(jobs.readline))
    async with AsyncExitStack() as stack:
        store = await Store.open(place.address, timeout=LONG_TIMEOUT, guard=StoreGuard(deployment=place.deployment))
        stack.push_async_callback(store.close)
        auditor = _Auditor(place, store, stack)
        async for job in _read(jobs):
            report = await auditor.audit(job)
            reports.write(msgspec.json.encode(report) + b"\n")
            reports.flush()


async def _read(jobs: BinaryIO) -> AsyncIterator[AuditJob]:
    while line := await asyncio.to_thread(jobs.readline):
        yield msgspec.json.decode(line, type=AuditJob)


class _Auditor:
    """Audits jobs; what a part needs is opened with its first page."""

    def __init__(self, place: AuditPlace, store: Store, stack: AsyncExitStack) -> None:
        self._place, self._store, self._stack = place, store, stack
        self._parts: dict[Part, AuditPage] = {}

    async def audit(self, job: AuditJob) -> AuditReport:
        if job.part not in self._parts:
            self._parts[job.part] = await self._open(job.part)
        return await self._parts[job.part](job.page)

    async def _open(self, part: Part) -> AuditPage:
        if part != "history":
            fields = partial(unreadable_fields, self._store) if part == "store" else None
            return StorePages(self._store, Scripts.load(), fields=fields).audit
        assert self._place.database is not None
        sql = self._stack.enter_context(closing(SqlThread()))
        database = await sql.run(Database.open, self._place.database, migrate_tables=False)
        self._stack.callback(database.close)
        return HistoryPages(self._store, database, sql).audit


def main() -> None:
    """The entry."""
    gc.set_threshold(20_000, 10, 10)  # 12 % less processor time: a page leaves hardly any garbage
    asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))


if __name__ == "__main__":
    main()

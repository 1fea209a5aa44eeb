"""An audit of many accounts by several processes finds what one finds, whatever becomes of the processes."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.tables import ledger_lines
from gateway.history.audit import audit_history
from gateway.ledger import AuditReport
from gateway.ledger.auditing import pages
from gateway.ledger.auditing.pages import PageAuditors
from gateway.services import audit_process
from gateway.services.audit_processes import AuditJob, AuditPlace, AuditProcesses, audit_processes
from gateway.services.ledger_audit import unreadable_fields
from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress, StoreAddress
from tests.history.importing import Importing
from tests.ledger.records import settle

FOUND = {"balance", "fields", "history hash 2"}
SERVER = RedisAddress(host="127.0.0.1", port=1, password="secret")


class Counting:
    """Passes pages to processes, and counts what they answered."""

    def __init__(self, processes: AuditProcesses) -> None:
        self._processes = processes
        self.answers: list[bool] = []
        self.at_once = processes.at_once

    async def run(self, part: Any, page: Any) -> AuditReport | None:
        found = await self._processes.run(part, page)
        self.answers.append(found is not None)
        return found


@pytest.fixture
def faulty(world: Any, importing: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Five accounts with lines in the store and in the database; three of them have a fault each."""
    monkeypatch.setattr(pages, "MANY", 1)
    monkeypatch.setattr(pages, "PAGE", 1)

    @asynccontextmanager
    async def made() -> AsyncIterator[Importing]:
        async with world() as w:
            one = importing(w)
            for name in ("a", "b", "c", "d", "e"):
                key = await w.caller(name, balance=1000)
                await settle(w.ledger, await w.admit(key, 50), 30)
                await one.all(name)
            await w.store.client.hincrby("{a:b}", "bal", 1)
            await w.store.client.hset("{a:c}", "rpm", "many")
            changed = ledger_lines.update().where(ledger_lines.c.account == "d", ledger_lines.c.seq == 2)
            with one.database.writing() as connection:
                connection.execute(changed.values(meta="{}"))
            yield one

    return made


async def audited(one: Importing, sql: Any, processes: PageAuditors | None) -> AuditReport:
    store = one.world.store
    report = await one.world.ledger.audit(fields=partial(unreadable_fields, store), processes=processes)
    report.add(await audit_history(store, one.database, sql, processes=processes))
    return report


@pytest.mark.slow
@pytest.mark.holds("operations/audit.md#audit-30")
async def test_processes_find_what_one_process_finds(faulty: Any, sql: Any) -> None:
    async with faulty() as one, audit_processes(one.world.store, one.database.address, count=2) as processes:
        assert processes is not None
        counting = Counting(processes)
        report = await audited(one, sql, counting)
        assert {found.rule for found in report.mismatches} >= FOUND
        assert report == await audited(one, sql, None)
        assert counting.answers == [True] * 10


@pytest.mark.slow
async def test_page_whose_process_has_ended_is_audited_by_the_command(faulty: Any, sql: Any) -> None:
    async with faulty() as one, audit_processes(one.world.store, one.database.address, count=2) as processes:
        assert processes is not None
        counting = Counting(processes)
        await processes.run("store", {"a": ()})
        processes._free[0].kill()
        report = await audited(one, sql, counting)
        assert {found.rule for found in report.mismatches} >= FOUND
        assert False in counting.answers


async def test_page_is_audited_by_the_command_if_no_process_can_do_it(
    faulty: Any, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    async with faulty() as one, audit_processes(one.world.store, None, count=2) as processes:
        assert processes is not None
        counting = Counting(processes)
        report = await audited(one, sql, counting)
        assert {found.rule for found in report.mismatches} >= FOUND
        assert counting.answers == [False] * 10


async def test_few_accounts_start_no_process(faulty: Any, sql: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MANY", 6)
    async with faulty() as one, audit_processes(one.world.store, one.database.address, count=2) as processes:
        await audited(one, sql, processes)
        assert processes is not None
        assert processes._started == 0


async def test_machine_with_one_core_has_no_processes(faulty: Any) -> None:
    async with faulty() as one, audit_processes(one.world.store, None, count=1) as processes:
        assert processes is None


@pytest.mark.parametrize(
    "address",
    [
        SERVER,
        SentinelAddress(sentinels=(SERVER,), service="s", server=SERVER),
        ClusterAddress(nodes=(SERVER, SERVER)),
    ],
)
@pytest.mark.parametrize(
    "database", [None, DatabaseAddress(url="postgresql+psycopg://h/d"), DatabaseAddress(file=Path("f"))]
)
def test_place_is_passed_on_as_it_is(address: StoreAddress, database: DatabaseAddress | None) -> None:
    place = AuditPlace.of(address, database, deployment="dep")
    read = AuditPlace.read(place.line())
    assert read == place
    assert read.address == address


async def test_process_answers_each_page_and_ends_with_its_input(faulty: Any) -> None:
    async with faulty() as one:
        place = AuditPlace.of(one.world.store.address, one.database.address)
        jobs = [AuditJob("store", {"b": ()}), AuditJob("history", {"d": (), "e": ()}), AuditJob("ledger", {"c": ()})]
        lines = b"".join(msgspec.json.encode(job) + b"\n" for job in jobs)
        reports = io.BytesIO()
        await audit_process.serve(io.BytesIO(place.line() + lines), reports)
        found = [msgspec.json.decode(line, type=AuditReport) for line in reports.getvalue().splitlines()]
        assert [{one.rule for one in report.mismatches} & FOUND for report in found] == [
            {"balance"},
            {"history hash 2"},
            set(),
        ]


async def test_every_line_is_audited_of_accounts_with_few_and_with_many(
    world: Any, importing: Any, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.history.audit.PAGE", 3)
    async with world() as w:
        one = importing(w)
        for name, calls in (("few", 1), ("many", 9), ("none", 0), ("other", 2)):
            key = await w.caller(name, balance=1000)
            for _ in range(calls):
                await settle(w.ledger, await w.admit(key, 50), 30)
            await one.all(name)
        report = await audit_history(w.store, one.database, sql)
        assert (report.mismatches, report.history_lines) == ([], 16)
        with one.database.writing() as connection:
            connection.execute(sa.delete(ledger_lines).where(ledger_lines.c.account.in_(["none", "other"])))
        report = await audit_history(w.store, one.database, sql)
        assert {found.account for found in report.mismatches if found.rule == "history sums"} == {"none", "other"}

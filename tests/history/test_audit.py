"""The audit proves the lines in the database, and that they continue into the store's."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.tables import import_state, ledger_lines, usage_daily, usage_hourly
from gateway.errors import DatabaseRefused
from gateway.history.audit import audit_history
from gateway.ledger.auditing.report import AuditReport
from tests.history.importing import Importing
from tests.history.test_forks import lose
from tests.ledger.records import settle
from tests.ledger.test_archive import aged, busy


@pytest.fixture
def audited(sql):
    """Audits the history of an importer's world."""

    async def audit(one: Importing, account: str | None = None) -> AuditReport:
        return await audit_history(one.world.store, one.database, sql, account)

    return audit


def rules(report: AuditReport) -> list[str]:
    return [found.rule for found in report.mismatches]


@pytest.mark.holds("operations/history.md#history-8")
async def test_sound_history_has_no_finding_before_and_after_lines_left_the_store(world, importing, audited) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=49, most=6)
        one = importing(w)
        await one.all("acme")
        await settle(w.ledger, await w.admit(key), 5)
        report = await audited(one)
        assert (report.mismatches, report.history_lines) == ([], 10)
        await one.all("acme")
        assert await w.store.client.xlen("{a:acme}:lg") == 5
        report = await audited(one)
        assert (report.mismatches, report.history_lines) == ([], 11)
        assert (await audited(one, "acme")).mismatches == []


@pytest.mark.holds("operations/audit.md#audit-21")
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda c: ledger_lines.update().where(c.seq == 3).values(meta="{}"), "history hash 3"),
        (lambda c: ledger_lines.update().where(c.seq == 3).values(amount=0), "history running 3"),
        (lambda c: ledger_lines.delete().where(c.seq == 3), "history sequence"),
        (lambda c: ledger_lines.delete().where(c.seq == 10), "history sums"),
        (lambda c: import_state.update().values(total=5), "history sums"),
        (lambda c: usage_hourly.update().values(cost=5), "history usage_hourly"),
        (lambda c: usage_daily.delete(), "history usage_daily"),
    ],
)
async def test_each_manipulation_is_found_and_named(world, importing, audited, database, change: Any, rule) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)
        await one.all("acme")
        with database.writing() as connection:
            connection.execute(change(ledger_lines.c))
        assert rule in rules(await audited(one))


@pytest.mark.holds("operations/audit.md#audit-21")
async def test_opening_sum_of_the_store_that_differs_is_found(world, importing, audited) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=49, most=6)
        one = importing(w)
        await one.all("acme")
        await w.store.client.hincrby("{a:acme}:ca", "bal", 1)
        assert rules(await audited(one)) == ["history opening"]


@pytest.mark.holds("operations/audit.md#audit-21")
async def test_store_that_lost_lines_is_found(world, importing, audited) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)
        await one.all("acme")
        await lose(w, 1)
        assert rules(await audited(one)) == ["history lines"]


async def test_lines_that_are_nowhere_are_found(world, importing, audited, database) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=49)
        one = importing(w)
        await one.all("acme")
        with database.writing() as connection:
            for table in (ledger_lines, import_state, usage_hourly, usage_daily):
                connection.execute(sa.delete(table))
        assert rules(await audited(one, "acme")) == ["history missing"]


async def test_another_database_is_refused(world, importing, audited, sql, tmp_path) -> None:
    other = Database.open(DatabaseAddress(file=tmp_path / "other.db"))
    async with world() as w:
        await busy(w)
        assert (await audit_history(w.store, other, sql)).mismatches == []
        await importing(w).all("acme")
        with pytest.raises(DatabaseRefused):
            await audit_history(w.store, other, sql)
    other.close()

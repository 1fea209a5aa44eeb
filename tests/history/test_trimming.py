"""Old lines leave the store once they are in the database, and everything still adds up."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from gateway.database.tables import import_state, ledger_lines
from gateway.history import trimming
from gateway.history.appending import append
from gateway.history.new_lines import read_new_lines
from gateway.ledger.archive_checkpoint import advance, read_archive_checkpoint
from gateway.ledger.entry import Entry
from gateway.ledger.journal import Journal
from gateway.ledger.ledger import Ledger
from tests.ledger.records import settle
from tests.ledger.test_archive import aged, busy

LINES = "{a:acme}:lg"


@pytest.mark.holds("operations/history.md#history-8", "scaling.md#limits-3")
async def test_old_lines_in_the_database_leave_the_store(world, importing, monkeypatch) -> None:
    monkeypatch.setattr(trimming, "PAGE", 2)
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=49, most=7)
        one = importing(w)
        await one.all("acme")
        await one.sweep()
        assert await w.store.client.xlen(LINES) == 3
        assert one.count("gateway_importer_trimmed") == 7
        assert (await read_archive_checkpoint(w.store, "acme")).hash == one.lines()[6].hash
        await w.proved()
        await settle(w.ledger, await w.admit(key), 5)
        await one.all("acme")
        assert [line.n for line in one.lines()] == list(range(1, 12))
        await w.proved()


async def test_account_whose_lines_have_all_left_the_store_goes_on(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=49)
        one = importing(w)
        await one.sweep()
        await one.sweep()
        assert await w.store.client.xlen(LINES) == 0
        await settle(w.ledger, await w.admit(key), 5)
        await one.all("acme")
        assert [line.amount for line in one.lines()][-2:] == [-9, -5]
        await w.proved()


async def test_young_lines_stay(world, importing) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=47)
        one = importing(w)
        await one.sweep()
        await one.sweep()
        assert await w.store.client.xlen(LINES) == 10


@pytest.mark.holds("operations/history.md#history-8", "scaling.md#costs-4", "scaling.md#limits-7")
async def test_store_keeps_lines_for_25_hours_whatever_an_importer_thinks(world, importing) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=24)
        one = importing(w, keep_lines=timedelta(hours=1))
        await one.sweep()
        await one.sweep()
        assert len(one.lines()) == 10
        assert await w.store.client.xlen(LINES) == 10


def importing_only(importing, world):
    """An importer that trims nothing yet."""
    return importing(world, keep_lines=timedelta(days=9))


@pytest.mark.holds("operations/history.md#history-8")
async def test_lines_that_differ_from_the_database_stay(world, importing, database) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=49)
        await importing_only(importing, w).all("acme")
        one = importing(w)
        with database.writing() as connection:
            changed = ledger_lines.update().where(ledger_lines.c.seq == 10)
            connection.execute(changed.values(hash=b"another"))
        await one.sweep()
        assert await w.store.client.xlen(LINES) == 10


async def test_lines_that_are_not_in_the_database_stay(world, importing) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=49)
        await importing_only(importing, w).all("acme")
        one = importing(w)
        with one.database.writing() as connection:
            connection.execute(sa.delete(ledger_lines))
        await one.sweep()
        assert await w.store.client.xlen(LINES) == 10


@pytest.mark.holds("operations/history.md#history-8")
async def test_late_settlement_finds_its_line_while_old_lines_are_trimmed(world, importing, tmp_path) -> None:
    """The marker has expired and the line is still in the store: the repeated entry charges nothing."""
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=49, most=5)
        hold = await w.admit(key)
        await settle(w.ledger, hold, 100)
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        one = importing(w)
        await one.sweep()
        assert await w.store.client.xlen(LINES) == 6
        balance = (await w.accounts.show("acme")).balance
        day = 86_400_000_000
        late = Entry("acme", hold.request_id, key.id, "use", -100, 0, hold.admitted_at - day, "{}", hold=1000)
        await w.ledger._writer.send(late)
        assert (await w.accounts.show("acme")).balance == balance
        await w.proved()


@pytest.mark.holds("operations/history.md#history-8")
async def test_settlement_later_than_its_line_was_kept_is_set_aside(world, importing, tmp_path) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=100)
        one = importing(w)
        await one.sweep()
        await one.sweep()
        journal = Journal(tmp_path / "journal")
        ledger = Ledger(w.store, {}, journal=journal)
        since = int((await read_archive_checkpoint(w.store, "acme")).milliseconds) * 1000 - 1
        balance = (await w.accounts.show("acme")).balance
        await ledger._writer.send(Entry("acme", "req_old", key.id, "use", -100, 0, since, "{}", hold=1000))
        journal.close()
        assert (await w.accounts.show("acme")).balance == balance
        assert "req_old" in (tmp_path / "journal" / "refused.jsonl").read_text()


async def test_importer_that_was_stopped_before_its_script_changes_nothing(world, importing, monkeypatch) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=49)
        stopped, other = importing_only(importing, w), importing_only(importing, w)
        for one in (stopped, other):
            await one.all("acme")
            one.service._keep_lines = timedelta(hours=48)
        codes: list[int] = []

        async def after_the_other(*args, **rest):
            monkeypatch.setattr(trimming, "advance", advance)
            await other.service._round(other.service._opened)
            codes.append(await advance(*args, **rest))
            return codes[-1]

        other.service._opened.trimmer.add(["acme"])
        monkeypatch.setattr(trimming, "advance", after_the_other)
        await stopped.sweep()
        assert codes == [1]
        assert await w.store.client.xlen(LINES) == 0
        assert (stopped.count("gateway_importer_trimmed"), other.count("gateway_importer_trimmed")) == (0, 10)
        await w.proved()


@pytest.mark.holds("operations/history.md#history-11")
async def test_database_that_was_restored_to_before_lines_left_the_store_is_blocked(world, importing, database) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=49)
        early = await read_new_lines(w.store, "acme", None, most=4)
        await importing(w).all("acme")
        with database.writing() as connection:
            for table in (ledger_lines, import_state):
                connection.execute(table.delete())
        append(database, [early])
        await settle(w.ledger, await w.admit(key), 5)
        one = importing(w)
        await one.all("acme")
        assert len(one.lines()) == 4
        assert one.metrics._gauges["gateway_importer_blocked", ()] == 1.0

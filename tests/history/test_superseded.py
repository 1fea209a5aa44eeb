"""Superseded lines: which are open, and that each is booked once, whoever books it and whenever it is interrupted."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.admin.outbox import AuditOutbox
from gateway.admin.refunds import Refunds
from gateway.admin.superseded_lines import SupersededLines
from gateway.admin.transactions import Transactions
from gateway.database.engine import Database
from gateway.database.tables import superseded_lines
from gateway.errors import Forbidden, NotFound
from gateway.history import superseded
from gateway.history.audit import audit_history
from gateway.history.sql_thread import SqlThread
from gateway.ledger.scripts import load_script
from tests.admin.services import ROOT, token
from tests.history.importing import Importing
from tests.history.test_forks import lose
from tests.ledger.records import settle
from tests.world import UNIT, World


def lines_of(w: World, database: Database, sql: SqlThread) -> SupersededLines:
    """The service of one process."""
    return SupersededLines(w.store, w.ledger, Refunds(w.ledger), AuditOutbox(w.store), Transactions(database, sql))


async def lost(w: World, one: Importing, *, credits: int, calls: int) -> int:
    """Credits and calls of an account that the store has lost; the balance before that."""
    key = await w.caller("acme", balance=10 * UNIT)
    for number in range(credits):
        await w.ledger.credit("acme", 1000 + number, operation=f"op-{number}")
    for number in range(calls):
        await settle(w.ledger, await w.admit(key, request_id=f"req_{number:032x}"), 10 + number)
    before = (await w.accounts.show("acme")).balance
    await one.all("acme")
    markers = [f"{{a:acme}}:st:req_{number:032x}" for number in range(calls)]
    await lose(w, credits + calls)
    client: Any = w.store.client
    await client.delete("{a:acme}:op", *markers)
    await client.hset(f"{{a:acme}}:k:{key.id}", "spent", 0)
    await one.all("acme")
    return before


@pytest.mark.holds(
    "admin-api.md#reports-statements-and-csv-files-7",
    "operations/backup.md#older-store-5",
    "security.md#backups-and-older-stores-2",
)
async def test_two_operators_at_once_book_each_line_once(world, importing, database) -> None:
    async with world() as w:
        one = importing(w)
        before = await lost(w, one, credits=20, calls=20)
        threads = [SqlThread() for _ in range(2)]
        done = await asyncio.gather(*(lines_of(w, database, thread).book(ROOT) for thread in threads))
        for thread in threads:
            thread.close()
        assert (await w.accounts.show("acme")).balance == before
        assert all(booking.left == 0 for booking in done)
        events = [event for _, event in await AuditOutbox(w.store).read() if event is not None]
        assert Counter(event.after["id"] for event in events).most_common(1)[0][1] == 1
        assert len(events) == 40
        await one.all("acme")
        await one.same()
        assert [line.request_id for line in one.lines()].count("op-3") == 1


@pytest.mark.holds("operations/backup.md#older-store-5")
@pytest.mark.parametrize("after", [1, 7, 23, 31])
async def test_booking_that_is_killed_in_the_middle_is_repeated_without_a_second_booking(
    world, importing, database, sql, monkeypatch, after: int
) -> None:
    async with world() as w:
        one = importing(w)
        before = await lost(w, one, credits=20, calls=20)
        added = AuditOutbox.add
        count = 0

        async def killed(self: AuditOutbox, event: Any) -> None:
            nonlocal count
            count += 1
            if count == after:
                raise asyncio.CancelledError
            await added(self, event)

        with monkeypatch.context() as patch:
            patch.setattr(AuditOutbox, "add", killed)
            with pytest.raises(asyncio.CancelledError):
                await lines_of(w, database, sql).book(ROOT)
        if after % 2:
            await one.all("acme")
        assert (await lines_of(w, database, sql).book(ROOT)).left == 0
        assert (await w.accounts.show("acme")).balance == before
        await one.all("acme")
        await one.same()
        assert (await audit_history(w.store, database, sql)).clean


@pytest.mark.holds("operations/backup.md#older-store-1")
async def test_audit_counts_all_and_names_the_first_page_by_page(world, importing, database, sql, monkeypatch) -> None:
    monkeypatch.setattr(superseded, "PAGE", 7)
    monkeypatch.setattr(superseded, "LISTED", 5)
    async with world() as w:
        await lost(w, importing(w), credits=20, calls=10)
        report = await audit_history(w.store, database, sql)
        assert (report.superseded_lines, len(report.superseded), report.clean) == (30, 5, False)
        assert [one.request_id for one in report.superseded] == [f"op-{number}" for number in range(5)]
        assert (await audit_history(w.store, database, sql, "other")).superseded_lines == 0
        lines = lines_of(w, database, sql)
        found = await lines.open_lines(ROOT, limit=12)
        assert len(found) == 12
        assert len(await lines.open_lines(ROOT, after=found[-1].id, limit=1000)) == 18
        assert (await lines.book(ROOT)).booked == 30


@pytest.mark.holds("operations/backup.md#older-store-5")
async def test_line_that_came_back_with_the_newer_store_is_not_open(world, importing, database, sql) -> None:
    """The store was put back, and then it was replaced by the one that was there before."""
    async with world() as w:
        one = importing(w)
        await w.caller("acme", balance=UNIT)
        await w.ledger.credit("acme", 5, operation="op-1")
        await one.all("acme")
        client: Any = w.store.client
        newer = {name: await client.dump(name) for name in await client.keys("*")}
        await lose(w, 2)
        await client.delete("{a:acme}:op")
        await w.ledger.credit("acme", 7, operation="op-2")
        await one.all("acme")
        lines = lines_of(w, database, sql)
        assert [found.line.kind for found in await lines.open_lines(ROOT, limit=10)] == ["open", "topup"]
        await client.flushall()
        for name, value in newer.items():
            await client.restore(name, 0, value)
        await one.sweep()
        found = await lines.open_lines(ROOT, limit=10)
        assert [one.line.request_id for one in found] == ["op-2"]


@pytest.mark.holds("operations/backup.md#older-store-1")
async def test_line_that_moved_no_money_is_not_open(world, importing, database, sql) -> None:
    async with world() as w:
        one = importing(w)
        key = await w.caller("acme", balance=UNIT)
        await settle(w.ledger, await w.admit(key), 0)
        await one.all("acme")
        await lose(w, 1)
        await one.all("acme")
        with database.reading() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(superseded_lines)) == 1
        assert await lines_of(w, database, sql).open_lines(ROOT, limit=10) == []
        assert (await audit_history(w.store, database, sql)).clean


@pytest.mark.holds("operations/backup.md#older-store-3")
async def test_reclaimed_call_and_its_amendment_are_one_charge(world, importing, database, sql) -> None:
    async with world() as w:
        one = importing(w)
        key = await w.caller("acme", balance=UNIT)
        hold = await w.admit(key, 100)
        await w.ledger.lapse("acme", [hold.request_id])
        await settle(w.ledger, hold, 90)
        before = (await w.accounts.show("acme")).balance
        assert [line.kind for line in await one.in_store()] == ["open", "reclaim", "adj"]
        await one.all("acme")
        await lose(w, 2)
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        await one.all("acme")
        done = await lines_of(w, database, sql).book(ROOT)
        assert (done.left, (await w.accounts.show("acme")).balance) == (0, before)
        await one.all("acme")
        assert (await one.in_store())[-1].kind == "use"


@pytest.mark.holds("operations/backup.md#older-store-4")
async def test_amendment_of_a_call_whose_charge_is_final_stays_open(world, importing, database, sql) -> None:
    async with world() as w:
        one = importing(w)
        key = await w.caller("acme", balance=UNIT)
        hold = await w.admit(key, 100)
        hold.used = 30
        await w.ledger.renew_leases([hold])
        await w.ledger.lapse("acme", [hold.request_id])
        marker = await w.store.client.get(f"{{a:acme}}:st:{hold.request_id}")
        await settle(w.ledger, hold, 90)
        before = (await w.accounts.show("acme")).balance
        await one.all("acme")
        await lose(w, 1)
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        await one.all("acme")
        lines = lines_of(w, database, sql)
        charged = (await w.accounts.show("acme")).balance
        done = await lines.book(ROOT)
        assert (done.left, "charge is final" in done.lines[0].state) == (1, True)
        assert (await w.accounts.show("acme")).balance == charged
        await w.store.client.set(f"{{a:acme}}:st:{hold.request_id}", marker)  # as in a store of the same day
        assert (await lines.book(ROOT)).left == 0
        assert (await w.accounts.show("acme")).balance == before


async def test_call_that_another_call_has_replaced_costs_nothing_after_its_booking(
    world, importing, database, sql
) -> None:
    """Its charge and the refund of it have the id of the call."""
    async with world() as w:
        one = importing(w)
        key = await w.caller("acme", balance=UNIT)
        await one.all("acme")
        link, claim = w.store.link("{a:acme}"), load_script("claim")
        meta = b'{"key":"%s","model":"m","outcome":"superseded"}' % key.id.encode()
        hold = await w.admit(key, 100)
        hold.used = 60
        await link.eval(claim, ["{a:acme}"], ["name", "digest", hold.request_id, key.id, meta])
        await w.ledger.renew_leases([hold])
        await w.ledger.lapse("acme", [hold.request_id])
        await w.store.client.hset("{a:acme}:id:name", "until", 0)
        await link.eval(claim, ["{a:acme}"], ["name", "digest", "req_other", key.id, meta])
        assert [line.kind for line in await one.in_store()] == ["open", "reclaim", "refund"]
        before = (await w.accounts.show("acme")).balance
        await one.all("acme")
        await lose(w, 2)
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        await one.all("acme")
        lines = lines_of(w, database, sql)
        done = await lines.book(ROOT)
        assert (done.booked, done.left, (await w.accounts.show("acme")).balance) == (2, 0, before)
        assert await lines.open_lines(ROOT, limit=5) == []
        await one.all("acme")
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        assert await lines.open_lines(ROOT, limit=5) == []


async def test_booking_needs_the_scope_credits_of_the_site(world, importing, database, sql) -> None:
    async with world() as w:
        await lost(w, importing(w), credits=1, calls=0)
        lines = lines_of(w, database, sql)
        for actor in (token("read"), token("accounts"), token("credits", account="acme")):
            with pytest.raises(Forbidden):
                await lines.book(actor)
            with pytest.raises(Forbidden):
                await lines.acknowledge(actor)
        with pytest.raises(Forbidden):
            await lines.open_lines(token("accounts"), limit=1)
        with pytest.raises(NotFound):
            await lines.book(token("credits"), [1, 77])
        with pytest.raises(NotFound):
            await lines.acknowledge(token("credits"), [77])
        assert len(await lines.open_lines(token("read"), limit=10)) == 1
        assert (await lines.book(token("credits"), [1])).booked == 1

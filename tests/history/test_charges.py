"""Refunds of calls whose lines have left the store: the database has the charge, the store what was given back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from gateway import errors
from gateway.admin.refunds import FindArchived, Refunds
from gateway.database.tables import ledger_lines
from gateway.history.reader import archived_charge
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.refund import ArchivedCharge
from tests.history.importing import Importing
from tests.ledger.records import settle
from tests.ledger.test_archive import aged
from tests.world import World

LINES = "{a:acme}:lg"


async def trimmed(w: World, one: Importing, *, most: int = 2) -> str:
    """The id of a call that was charged 1000; the first `most` lines have left the store."""
    hold = await w.admit(await w.caller(balance=10_000, budget=5_000), 1000)
    await settle(w.ledger, hold, 1000)
    await settle(w.ledger, await w.admit(hold.key), 3)
    await aged(w, hours=49, most=most)
    await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
    await one.sweep()
    await one.sweep()
    assert await w.store.client.xlen(LINES) == 3 - most
    return hold.request_id


def finder(w: World, one: Importing) -> FindArchived:
    async def find(account: str, request_id: str) -> ArchivedCharge | None:
        checkpoint = await read_archive_checkpoint(w.store, account)
        return archived_charge(one.database, account, request_id, checkpoint)

    return find


Importings = Callable[..., Importing]


@pytest.mark.holds("operations/history.md#history-8")
async def test_charge_that_left_the_store_is_refunded_up_to_its_amount_and_no_further(
    world: Any, importing: Importings
) -> None:
    async with world() as w:
        one = importing(w)
        request_id = await trimmed(w, one)
        with pytest.raises(errors.NotFound, match="nor in the database"):
            await Refunds(w.ledger).refund("acme", request_id)
        refunds = Refunds(w.ledger, finder(w, one))
        given = await refunds.refund("acme", request_id, 300, note="slow", operation="op-1")
        assert (given.status, given.amount, given.balance) == ("done", 300, 10_000 - 1003 + 300)
        assert (await refunds.refund("acme", request_id, 300, operation="op-1")).status == "repeated"
        with pytest.raises(errors.InvalidValue, match=r"only 0\.0000007 is left"):
            await refunds.refund("acme", request_id, 701)
        asks = [refunds.refund("acme", request_id, 400) for _ in range(5)]
        done = await asyncio.gather(*asks, return_exceptions=True)
        assert sum(not isinstance(one, Exception) for one in done) == 1
        assert (await refunds.refund("acme", request_id)).amount == 300
        with pytest.raises(errors.InvalidValue, match="nothing is left"):
            await refunds.refund("acme", request_id)
        with pytest.raises(errors.NotFound, match="nor in the database"):
            await refunds.refund("acme", "req_other")
        (key,) = await w.keys.list("acme")
        assert key.spent == 3
        await one.all("acme")
        await w.proved()


async def test_refund_is_repeated_if_more_lines_leave_the_store_meanwhile(world: Any, importing: Importings) -> None:
    async with world() as w:
        one = importing(w)
        request_id = await trimmed(w, one)
        find, asked = finder(w, one), 0

        async def late(account: str, request_id: str) -> ArchivedCharge | None:
            nonlocal asked
            asked += 1
            found = await find(account, request_id)
            if asked == 1:
                await aged(w, hours=49)
                await one.all("acme")  # the line has another id now: it is superseded and imported again
                await one.sweep()
                assert await w.store.client.xlen(LINES) == 0
            return found

        assert (await Refunds(w.ledger, late).refund("acme", request_id)).amount == 1000
        assert asked == 2
        await w.proved()


async def test_database_with_another_history_refunds_nothing(world: Any, importing: Importings) -> None:
    """The store lost lines and has others now, or the database is one of another store."""
    async with world() as w:
        one = importing(w)
        request_id = await trimmed(w, one)
        with one.database.writing() as connection:
            connection.execute(sa.update(ledger_lines).where(ledger_lines.c.seq == 2).values(hash=b"\0" * 32))
        before = await w.accounts.show("acme")
        with pytest.raises(errors.NotFound):
            await Refunds(w.ledger, finder(w, one)).refund("acme", request_id)
        assert await w.accounts.show("acme") == before


async def test_charge_of_which_only_the_amendment_is_in_the_store_is_refunded_whole(
    world: Any, importing: Importings
) -> None:
    async with world() as w:
        one = importing(w)
        hold = await w.admit(await w.caller(balance=10_000), 1000)
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        await settle(w.ledger, hold, 700)
        await aged(w, hours=49, most=2)
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        await one.sweep()
        await one.sweep()
        (amendment,) = [line for line in await one.in_store() if line.kind != "carry"]
        assert (amendment.kind, amendment.amount) == ("adj", -700)
        with pytest.raises(errors.NotFound):
            await Refunds(w.ledger).refund("acme", hold.request_id)
        assert (await Refunds(w.ledger, finder(w, one)).refund("acme", hold.request_id)).amount == 700
        await w.proved()

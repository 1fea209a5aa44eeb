"""Refunds: within the charge, once per operation, and back to the key's budget."""

import asyncio

import pytest

from gateway import errors
from gateway.admin.refunds import Refunds
from tests.ledger.records import settle

ACME = "{a:acme}"


async def charged(w, cost: int = 1000, **key):
    """A call that was charged; its hold."""
    hold = await w.admit(await w.caller(balance=10_000, **key), 1000)
    await settle(w.ledger, hold, cost)
    return hold


async def test_refund_gives_back_the_whole_charge_with_a_line_of_its_own(world):
    async with world() as w:
        hold = await charged(w)
        refunded = await Refunds(w.ledger).refund("acme", hold.request_id, note="was slow")
        assert (refunded.status, refunded.amount, refunded.balance) == ("done", 1000, 10_000)
        line = [line async for line in w.ledger.lines("acme")][-1]
        assert (line.kind, line.request_id, line.amount) == ("refund", refunded.operation, 1000)
        form = line.json_form()
        assert (form["refunds"], form["note"], form["key"]) == (hold.request_id, "was slow", hold.key.id)
        await w.proved()


async def test_parts_are_refunded_up_to_the_charge_and_no_further(world):
    async with world() as w:
        hold = await charged(w)
        refunds = Refunds(w.ledger)
        await refunds.refund("acme", hold.request_id, 300)
        await refunds.refund("acme", hold.request_id, 400)
        with pytest.raises(errors.InvalidValue, match=r"only 0\.0000003 is left"):
            await refunds.refund("acme", hold.request_id, 301)
        assert (await refunds.refund("acme", hold.request_id)).amount == 300
        with pytest.raises(errors.InvalidValue, match="nothing is left"):
            await refunds.refund("acme", hold.request_id)
        assert (await w.accounts.show("acme")).balance == 10_000
        assert await w.ledger.refunded_of("acme", hold.request_id) == 1000
        await w.proved()


async def test_many_refunds_at_once_give_back_the_charge_once(world):
    async with world() as w:
        hold = await charged(w)
        asks = [w.ledger.refund("acme", hold.request_id, 400) for _ in range(10)]
        statuses = [refunded.status for refunded in await asyncio.gather(*asks)]
        assert sorted(statuses) == ["done"] * 2 + ["more"] * 8
        await w.proved()


async def test_refund_lowers_what_the_key_has_spent(world):
    async with world() as w:
        hold = await charged(w, budget=1500)
        with pytest.raises(errors.BudgetExceeded):
            await w.admit(hold.key, 600)
        await Refunds(w.ledger).refund("acme", hold.request_id, 100)
        assert (await w.keys.list("acme"))[0].spent == 900
        await w.admit(hold.key, 600)
        await w.proved()


@pytest.mark.parametrize("amount", [None, 400])
async def test_repeated_operation_refunds_once_and_names_its_amount(world, amount):
    async with world() as w:
        hold = await charged(w)
        refunds = Refunds(w.ledger)
        first = await refunds.refund("acme", hold.request_id, amount, operation="ticket-7")
        before = await w.dump()
        again = await refunds.refund("acme", hold.request_id, amount, operation="ticket-7")
        assert (again.status, again.amount) == ("repeated", first.amount)
        assert await w.dump() == before


async def test_operation_of_another_refund_or_credit_is_refused(world):
    async with world() as w:
        one, other = await charged(w), await charged(w)
        refunds = Refunds(w.ledger)
        await refunds.refund("acme", one.request_id, 400, operation="ticket-7")
        await w.accounts.credit("acme", 400, operation="gift")
        before = await w.dump()
        for request_id, amount, operation in [
            (one.request_id, 300, "ticket-7"),
            (other.request_id, 400, "ticket-7"),
            (one.request_id, 400, "gift"),
        ]:
            with pytest.raises(errors.Conflict, match="already used"):
                await refunds.refund("acme", request_id, amount, operation=operation)
        assert await w.dump() == before


@pytest.mark.parametrize("marked", [True, False], ids=["with its marker", "after a day"])
async def test_refund_of_an_amended_call_covers_both_lines(world, marked):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        await settle(w.ledger, hold, 450)
        if not marked:
            await w.store.client.delete(f"{ACME}:st:{hold.request_id}")
        assert (await Refunds(w.ledger).refund("acme", hold.request_id)).amount == 450
        await w.proved()


async def test_worker_that_returns_after_a_refund_of_its_reclaimed_call_changes_nothing(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        await Refunds(w.ledger).refund("acme", hold.request_id)
        await settle(w.ledger, hold, 120)
        assert (await w.accounts.show("acme")).balance == 10_000
        await w.proved()


async def test_request_that_is_running_unknown_or_free_has_nothing_to_refund(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        free = await w.admit(hold.key, 0)
        await settle(w.ledger, free, 0)
        before = await w.dump()
        for request_id in (hold.request_id, "req_unknown"):
            with pytest.raises(errors.NotFound, match="no settled request"):
                await Refunds(w.ledger).refund("acme", request_id)
        with pytest.raises(errors.InvalidValue, match="nothing is left"):
            await Refunds(w.ledger).refund("acme", free.request_id)
        for account in ("nobody", "no {name}"):
            with pytest.raises(errors.NotFound, match="no account"):
                await Refunds(w.ledger).refund(account, free.request_id)
        assert await w.dump() == before


async def test_refund_above_the_largest_balance_is_refused(world):
    async with world() as w:
        hold = await charged(w)
        await w.accounts.credit("acme", 9_000_000 * 10**9 - 9500)
        with pytest.raises(errors.InvalidValue, match="cannot pass 9000000"):
            await Refunds(w.ledger).refund("acme", hold.request_id)


@pytest.mark.parametrize(
    ("amount", "operation", "note"),
    [(0, None, ""), (-1, None, ""), (1, "a b", ""), (1, None, "\n"), (1, None, "x" * 501)],
)
async def test_impossible_refunds_are_refused(world, amount, operation, note):
    async with world() as w:
        hold = await charged(w)
        with pytest.raises(errors.InvalidValue):
            await Refunds(w.ledger).refund("acme", hold.request_id, amount, operation=operation, note=note)

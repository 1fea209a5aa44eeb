"""Credit lines, limits and monthly caps of accounts."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gateway import errors
from gateway.admin.account_limits import AccountLimits
from gateway.admin.refunds import Refunds
from gateway.ledger import GroupLimits
from tests.ledger.records import settle

ACME = "{a:acme}"


def limits_of(w) -> AccountLimits:
    return AccountLimits(w.store, w.accounts)


async def month_passes(w) -> None:
    """The current month becomes an earlier one."""
    await w.store.client.hset(ACME, "month", "2020-01")


async def test_credit_line_is_lent_to_calls_and_no_more(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        account = await limits_of(w).change("acme", floor=-500)
        assert (account.floor, account.available) == (-500, 1500)
        hold = await w.admit(key, 1500)
        with pytest.raises(errors.BalanceExhausted):
            await w.admit(key, 1)
        await settle(w.ledger, hold, 1400)
        assert (await w.accounts.show("acme")).available == 100
        await w.proved()


async def test_floor_is_not_raised_above_what_running_calls_leave(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        await w.admit(key, 600)
        before = await w.dump()
        with pytest.raises(errors.InvalidValue, match=r"above 0\.0000004 now"):
            await limits_of(w).change("acme", floor=401, rpm=5)
        assert await w.dump() == before
        assert (await limits_of(w).change("acme", floor=400)).available == 0
        assert (await limits_of(w).change("acme", clear=["floor"])).floor == 0
        await w.proved()


async def test_floor_of_an_overdrawn_account_may_be_lowered(world):
    async with world() as w:
        await w.caller(balance=1000)
        await w.accounts.credit("acme", -3000, allow_negative=True, force=True)
        assert (await limits_of(w).change("acme", floor=-500)).floor == -500


@pytest.mark.parametrize("group", [GroupLimits(), GroupLimits(rpm=9, tpm=900, concurrency=9)], ids=["alone", "higher"])
async def test_lower_limit_of_account_and_group_counts(world, group):
    async with world(default=group) as w:
        key = await w.caller()
        limits = limits_of(w)
        await limits.change("acme", concurrency=1)
        hold = await w.admit(key)
        with pytest.raises(errors.ConcurrencyLimited):
            await w.admit(key)
        await settle(w.ledger, hold, 1)
        await limits.change("acme", clear=["concurrency"], tpm=100)
        with pytest.raises(errors.InvalidValue, match="limit of 100 tokens"):
            await w.admit(key, 1000, 101)
        await limits.change("acme", clear=["tpm"], rpm=1)
        if group.rpm is None:
            await w.admit(key)
        with pytest.raises(errors.RequestRateLimited):
            await w.admit(key)


async def test_lower_limit_of_the_group_counts(world):
    async with world(default=GroupLimits(rpm=1)) as w:
        key = await w.caller()
        await limits_of(w).change("acme", rpm=100)
        assert (await w.admit(key)).rates.limit_requests == 1


@pytest.mark.holds("prices.md#what-is-held-5")
async def test_cap_refuses_what_a_month_may_not_cost_and_begins_again(world):
    async with world() as w:
        key = await w.caller()
        account = await limits_of(w).change("acme", monthly=1000)
        assert (account.monthly, account.month_spent, account.available) == (1000, 0, 1000)
        await settle(w.ledger, await w.admit(key, 600), 600)
        with pytest.raises(errors.SpendLimitExceeded):
            await w.admit(key, 401)
        await settle(w.ledger, await w.admit(key, 400), 300)
        account = await w.accounts.show("acme")
        assert (account.month_spent, account.available) == (900, 100)
        await month_passes(w)
        account = await w.accounts.show("acme")
        assert (account.month_spent, account.available) == (0, 1000)
        await w.admit(key, 1000)
        await w.proved()


async def test_free_calls_pass_a_spent_cap(world):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=0)
        with pytest.raises(errors.SpendLimitExceeded):
            await w.admit(key, 1)
        await settle(w.ledger, await w.admit(key, 0), 0)


async def test_calls_at_once_stay_within_the_cap(world):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=1000)
        answers = await asyncio.gather(*(w.admit(key, 100) for _ in range(30)), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, errors.SpendLimitExceeded)]
        assert len(refused) == 20


async def test_call_counts_in_the_month_it_is_settled_in(world):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=1000)
        await settle(w.ledger, await w.admit(key, 500), 500)
        hold = await w.admit(key, 300)
        await month_passes(w)
        await settle(w.ledger, hold, 200)
        assert (await w.accounts.show("acme")).month_spent == 200


@pytest.mark.holds("prices.md#what-is-collected-1")
async def test_cost_above_the_hold_stays_within_the_cap_of_the_month(world):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=1000)
        first, second = await w.admit(key, 300), await w.admit(key, 200)
        await settle(w.ledger, first, 5000)
        lines = [line async for line in w.ledger.lines("acme")]
        assert (lines[-1].amount, lines[-1].uncollected) == (-800, 4200)
        await settle(w.ledger, second, 5000)
        assert (await w.accounts.show("acme")).month_spent == 1000
        await w.proved()


async def test_extension_and_reclaim_stay_within_the_cap_of_the_month(world):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=1000)
        hold = await w.admit(key, 300)
        with pytest.raises(errors.SpendLimitExceeded):
            await w.ledger.extend(hold, 701)
        await w.ledger.extend(hold, 100)
        hold.used = 5000
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        assert (await w.accounts.show("acme")).month_spent == 1000
        await settle(w.ledger, hold, 250)
        assert (await w.accounts.show("acme")).month_spent == 250
        await w.proved()


async def test_money_of_expired_holds_is_free_for_a_call_under_a_cap(world):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=1000)
        hold = await w.admit(key, 900)
        hold.used = 100
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.admit(key, 900)
        account = await w.accounts.show("acme")
        assert (account.month_spent, account.held, account.available) == (100, 900, 0)


async def test_new_cap_counts_what_was_charged_this_month(world):
    async with world() as w:
        key = await w.caller()
        for cost in (100, 200):
            await settle(w.ledger, await w.admit(key, 1000), cost)
        await w.accounts.credit("acme", -50, allow_negative=True)  # no charge of a call
        lines = await w.store.client.xrange(f"{ACME}:lg")
        await w.store.client.delete(f"{ACME}:lg")
        last_month = int((datetime.now(UTC) - timedelta(days=40)).timestamp() * 1000)
        for number, (id_, fields) in enumerate(lines):  # the first call was charged last month
            await w.store.client.xadd(f"{ACME}:lg", fields, id=f"{last_month}-{number}" if number < 2 else id_)
        assert (await limits_of(w).change("acme", monthly=1000)).month_spent == 200
        assert (await limits_of(w).change("acme", monthly=2000)).month_spent == 200


async def test_cap_of_a_command_that_was_killed_is_counted_by_the_next(world):
    async with world() as w:
        key = await w.caller()
        await settle(w.ledger, await w.admit(key, 1000), 100)
        [last] = await w.store.client.xrevrange(f"{ACME}:lg", count=1)
        await limits_of(w).change("acme", monthly=1000)
        await w.store.client.hset(ACME, mapping={"mspent": 0, "mfrom": last[0]})
        await settle(w.ledger, await w.admit(key, 500), 30)
        assert (await limits_of(w).change("acme", monthly=1000)).month_spent == 130


@pytest.mark.parametrize("same_month", [True, False])
async def test_refund_gives_back_to_the_month_of_its_charge_only(world, same_month):
    async with world() as w:
        key = await w.caller()
        await limits_of(w).change("acme", monthly=1000)
        hold = await w.admit(key, 600)
        await settle(w.ledger, hold, 600)
        if not same_month:
            [(_, fields)] = await w.store.client.xrevrange(f"{ACME}:lg", count=1)
            await w.store.client.delete(f"{ACME}:lg", f"{ACME}:st:{hold.request_id}")
            last_month = int((datetime.now(UTC) - timedelta(days=40)).timestamp() * 1000)
            await w.store.client.xadd(f"{ACME}:lg", fields, id=f"{last_month}-1")
        await Refunds(w.ledger).refund("acme", hold.request_id, 250)
        assert (await w.accounts.show("acme")).month_spent == (350 if same_month else 600)


async def test_cleared_limits_leave_no_trace(world):
    async with world() as w:
        await w.caller()
        before = await w.dump()
        await limits_of(w).change("acme", rpm=1, tpm=1, concurrency=1, monthly=1)
        account = await limits_of(w).change("acme", clear=["rpm", "tpm", "concurrency", "monthly"])
        assert (account.rpm, account.tpm, account.concurrency, account.monthly) == (None, None, None, None)
        assert {name: value for name, value in (await w.dump()).items() if name != ACME.encode()} == {
            name: value for name, value in before.items() if name != ACME.encode()
        }
        assert not await w.store.client.hexists(ACME, "own")


@pytest.mark.parametrize(
    "change",
    [
        {"rpm": 0},
        {"tpm": 10**10},
        {"monthly": -1},
        {"floor": -(10**17)},
        {"clear": ["balance"]},
        {"rpm": 1, "clear": ["rpm"]},
    ],
)
async def test_impossible_limits_are_refused(world, change):
    async with world() as w:
        await w.caller()
        with pytest.raises(errors.InvalidValue):
            await limits_of(w).change("acme", **change)


async def test_limits_of_an_unknown_account_are_refused(world):
    async with world() as w:
        for name in ("nobody", "no name"):
            with pytest.raises(errors.NotFound):
                await limits_of(w).change(name, rpm=1)

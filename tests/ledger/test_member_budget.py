"""The budget of a member: over all keys of the user in an account, with the holds of running calls."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from gateway import errors
from gateway.admin.refunds import Refunds
from gateway.ledger.scripts import load_script
from tests.ledger.records import record_of, settle

ANN = "usr_ann"
MEMBER = f"{{a:acme}}:u:{ANN}"


async def limit(w, budget: int, every: str = "", user: str = ANN) -> None:
    pairs = ["cap", budget, *(["every", every] if every else [])]
    code, *_ = await w.store.link("{a:acme}").eval(load_script("edit_member"), ["{a:acme}"], [user, *pairs])
    assert code == 0


async def member(w) -> dict[str, int]:
    fields = await w.store.client.hgetall(MEMBER)
    return {name: int(fields.get(name.encode(), 0)) for name in ("spent", "held")}


async def assert_member(w, *, spent: int, held: int) -> None:
    """These are the sums of the member, and the ledger of the account adds up."""
    assert await member(w) == {"spent": spent, "held": held}
    await w.proved()


async def keys_of_ann(w, count: int = 2, *, budget: int = 0, every: str = ""):
    """Keys of the member, with a budget over them unless it is 0."""
    keys = [await w.caller(user=ANN) for _ in range(count)]
    if budget:
        await limit(w, budget, every)
    return keys


async def charges(w) -> list[tuple[int, int]]:
    """What calls were charged, and what of their cost was not collected."""
    return [(-line.amount, line.uncollected) async for line in w.ledger.lines("acme") if line.kind == "use"]


@pytest.mark.holds("people.md#budgets-of-members-1")
async def test_budget_is_shared_by_all_keys_of_the_user_and_by_no_other_key(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000)
        service = await w.caller()
        await settle(w.ledger, await w.admit(one, 600), 600)
        with pytest.raises(errors.MemberBudgetExceeded) as refused:
            await w.admit(two, 401)
        assert (refused.value.status, refused.value.type, refused.value.scope) == (429, "insufficient_quota", "member")
        await w.admit(two, 400)
        await w.admit(service, 5000)
        await assert_member(w, spent=600, held=400)


@pytest.mark.holds("people.md#budgets-of-members-1")
async def test_holds_of_running_calls_count_over_all_keys_and_in_one_batch(world):
    async with world() as w:
        keys = await keys_of_ann(w, 4, budget=1000)
        asks = [w.admit(key, 300) for key in keys]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        assert sum(isinstance(answer, errors.MemberBudgetExceeded) for answer in answers) == 1
        await assert_member(w, spent=0, held=900)


@pytest.mark.holds("prices.md#what-is-collected-1")
async def test_charge_above_the_hold_takes_only_what_the_members_other_calls_do_not_hold(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000)
        first, second = await w.admit(one, 300), await w.admit(two, 500)
        await settle(w.ledger, first, 5000)
        assert await charges(w) == [(500, 4500)]  # the hold, and 200 that were free
        await assert_member(w, spent=500, held=500)
        await settle(w.ledger, second, 500)
        await assert_member(w, spent=1000, held=0)


async def test_stream_is_not_extended_past_the_members_budget(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000)
        hold = await w.admit(one, 300)
        await w.admit(two, 500)
        with pytest.raises(errors.MemberBudgetExceeded):
            await w.ledger.extend(hold, 201)
        await w.ledger.extend(hold, 200)
        await assert_member(w, spent=0, held=1000)


async def test_reclaimed_call_counts_for_the_member_and_within_the_budget(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000)
        hold = await w.admit(one, 300)
        await w.admit(two, 600)
        hold.used = 900
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        await assert_member(w, spent=400, held=600)
        await settle(w.ledger, hold, 950)  # the worker was only paused: nothing more is free
        await assert_member(w, spent=400, held=600)


async def test_late_settlement_counts_for_the_member(world):
    async with world() as w:
        (key,) = await keys_of_ann(w, 1)
        hold = await w.admit(key, 300)
        await w.store.client.delete("{a:acme}:rv", "{a:acme}:rx")
        await w.store.client.hset("{a:acme}", "held", 0)
        await w.store.client.hset(MEMBER, "held", 0)
        await settle(w.ledger, hold, 200)
        await assert_member(w, spent=200, held=0)


async def test_refund_gives_the_money_back_to_the_members_budget(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000, every="month")
        hold = await w.admit(one, 1000)
        await settle(w.ledger, hold, 1000)
        with pytest.raises(errors.MemberBudgetExceeded):
            await w.admit(two, 1)
        await Refunds(w.ledger).refund("acme", hold.request_id, 400)
        await w.admit(two, 400)
        line = [line async for line in w.ledger.lines("acme")][-1]
        assert line.meta["user"] == ANN
        await assert_member(w, spent=600, held=400)


@pytest.mark.holds("people.md#budgets-of-members-1")
async def test_budget_of_a_period_begins_again_with_the_next_one(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000, every="day")
        await settle(w.ledger, await w.admit(one, 900), 900)
        with pytest.raises(errors.MemberBudgetExceeded):
            await w.admit(two, 200)
        await w.store.client.hset(MEMBER, "period", "d1")
        hold = await w.admit(two, 1000)
        await settle(w.ledger, hold, 1000)
        with pytest.raises(errors.MemberBudgetExceeded):
            await w.admit(one, 1)
        assert int(await w.store.client.hget(MEMBER, "base")) == 900
        await w.proved()


@pytest.mark.holds("people.md#keys-of-users-2")
async def test_every_line_of_a_call_of_a_user_names_the_user(world):
    async with world() as w:
        one, _ = await keys_of_ann(w)
        await settle(w.ledger, await w.admit(one), 10)
        w.ledger.book(await w.admit(one), record_of(0), free=True)
        w.ledger.book(await w.admit(one), None)
        await w.ledger.drain()
        await w.expire(await w.admit(one))
        await w.ledger.reclaim("acme")
        lines = [line async for line in w.ledger.lines("acme") if line.kind != "open"]
        assert [line.meta["user"] for line in lines] == [ANN] * 4
        service = await w.caller()
        await settle(w.ledger, await w.admit(service), 10)
        assert "user" not in [line async for line in w.ledger.lines("acme")][-1].meta


async def test_explain_names_the_members_budget_and_reads_only(world):
    async with world() as w:
        (key,) = await keys_of_ann(w, 1, budget=100)
        before = await w.dump()
        explained = await w.ledger.explain(*w.ask(key, 101))
        assert [refusal.code for refusal in explained.refusals] == [15]
        assert (explained.facts["member.budget"], explained.facts["member.spent"]) == ("100", "0")
        assert await w.dump() == before


@pytest.mark.holds("operations/audit.md#audit-11")
async def test_audit_finds_wrong_sums_of_a_member(world):
    async with world() as w:
        (key,) = await keys_of_ann(w, 1)
        await settle(w.ledger, await w.admit(key, 300), 300)
        await w.admit(key, 50)
        await w.store.client.hset(MEMBER, mapping={"spent": 299, "held": 51})
        report = await w.ledger.audit()
        assert [(one.rule, one.expected, one.found) for one in report.mismatches] == [
            (f"member_held {ANN}", "50", "51"),
            (f"member_spent {ANN}", "300", "299"),
        ]


@pytest.mark.holds("prices.md#what-is-collected-1")
@pytest.mark.parametrize("seed", range(3))
async def test_members_never_spend_more_than_their_budget_in_random_calls(world, seed):
    rng = random.Random(seed)
    async with world() as w:
        keys = await keys_of_ann(w, 3, budget=5000) + [await w.caller()]
        running: list[Any] = []
        for _ in range(60):
            kind = rng.choice(("admit", "admit", "settle", "extend", "reclaim"))
            if kind == "admit":
                asks = [w.admit(rng.choice(keys), rng.randrange(1, 900)) for _ in range(rng.randrange(1, 4))]
                found = await asyncio.gather(*asks, return_exceptions=True)
                running += [hold for hold in found if not isinstance(hold, Exception)]
            elif running and kind == "settle":
                await settle(w.ledger, running.pop(rng.randrange(len(running))), rng.randrange(0, 2000))
            elif running and kind == "extend":
                hold = rng.choice(running)
                with contextlib.suppress(errors.MemberBudgetExceeded, errors.Conflict):
                    await w.ledger.extend(hold, rng.randrange(1, 300))
            elif running:
                hold = rng.choice(running)
                hold.used = rng.randrange(0, 1500)
                await w.ledger.renew_leases([hold])
                await w.expire(hold)
                await w.ledger.reclaim("acme")
            now = await member(w)
            assert now["spent"] + now["held"] <= 5000
            await w.proved()


async def test_hold_of_an_older_worker_is_not_part_of_what_the_member_holds(world):
    async with world() as w:
        one, two = await keys_of_ann(w, budget=1000)
        hold = await w.admit(one, 300)
        await w.admit(two, 500)
        record = (await w.store.client.hget("{a:acme}:rv", hold.request_id)).decode()
        await w.store.client.hset("{a:acme}:rv", hold.request_id, record.replace(" -u ", " - "))
        await w.store.client.hincrby(MEMBER, "held", -300)
        await settle(w.ledger, hold, 5000)
        assert await charges(w) == [(500, 4500)]
        assert (await member(w))["held"] == 500

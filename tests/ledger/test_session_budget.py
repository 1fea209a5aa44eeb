"""The budget of a session: over all its calls in an account within a day, with the holds of running calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from gateway import errors
from gateway.admin.account_limits import AccountLimits
from gateway.ledger import GroupLimits, Hold
from gateway.ledger.api_key import ApiKey
from tests.ledger.records import book, quote_of, record_of
from tests.world import World

SESSION = "{a:acme}:ss:agent-7"


async def ask(w: World, key: ApiKey, hold: int, session: str = "agent-7") -> Hold:
    """Admit a call of a session."""
    return await w.admit(key, hold, session=session)


async def settle(w: World, hold: Hold, cost: int, session: str = "agent-7") -> None:
    await book(w.ledger, hold, record_of(cost, session=session))


async def sums(w: World, name: str = SESSION) -> dict[str, int]:
    fields = await w.store.client.hgetall(name)
    return {name: int(fields.get(name.encode(), 0)) for name in ("spent", "held")}


async def assert_session(w: World, *, spent: int, held: int) -> None:
    """These are the sums of the session, and the ledger of the account adds up."""
    assert await sums(w) == {"spent": spent, "held": held}
    await w.proved()


async def charges(w: World) -> list[tuple[int, int]]:
    """What calls were charged, and what of their cost was not collected."""
    return [(-line.amount, line.uncollected) async for line in w.ledger.lines("acme") if line.kind == "use"]


@pytest.mark.holds("prices.md#budgets-of-sessions-1")
async def test_parallel_calls_of_a_session_are_admitted_up_to_its_budget_and_others_are_not_touched(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=2000)
        answers = await asyncio.gather(*(ask(w, key, 100) for _ in range(200)), return_exceptions=True)
        holds = [answer for answer in answers if isinstance(answer, Hold)]
        refused = [answer for answer in answers if isinstance(answer, errors.SessionBudgetExceeded)]
        assert (len(holds), len(refused)) == (20, 180)
        await assert_session(w, spent=0, held=2000)
        other = await ask(w, key, 2000, "agent-8")
        await ask(w, key, 5000, "")
        await asyncio.gather(*(settle(w, hold, 100) for hold in holds))
        await settle(w, other, 2000, "agent-8")
        await assert_session(w, spent=2000, held=0)


@pytest.mark.holds("prices.md#budgets-of-sessions-3")
async def test_lines_of_a_batch_have_no_budget_of_a_session(world: Any) -> None:
    batch, beside = f"batch_{32 * 'a'}", f"batch_{31 * 'a'}"
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        for _ in range(3):
            await settle(w, await ask(w, key, 600, batch), 600, batch)
        assert await sums(w, f"{{a:acme}}:ss:{batch}") == {"spent": 0, "held": 0}
        await ask(w, key, 600, beside)
        with pytest.raises(errors.SessionBudgetExceeded):
            await ask(w, key, 600, beside)
        await w.proved()


@pytest.mark.holds("prices.md#budgets-of-sessions-2")
async def test_refusal_says_what_is_left_and_that_it_is_of_the_session(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        await settle(w, await ask(w, key, 600), 600)
        with pytest.raises(errors.SessionBudgetExceeded, match=r"0\.0000004 is left of it today") as refused:
            await ask(w, key, 401)
        error = refused.value
        assert (error.status, error.code, error.limit, error.scope) == (
            429,
            "session_budget_exceeded",
            "budget",
            "session",
        )
        assert error.should_retry is False
        await ask(w, key, 400)
        with pytest.raises(errors.SessionBudgetExceeded, match="0 is left"):
            await ask(w, key, 1)


@pytest.mark.holds("prices.md#budgets-of-sessions-1")
@pytest.mark.parametrize(
    ("of_key", "of_account", "of_group"), [(500, 900, 900), (900, 500, 900), (900, 900, 500), (0, 0, 500)]
)
async def test_lowest_limit_of_key_account_and_group_counts(
    world: Any, of_key: int, of_account: int, of_group: int
) -> None:
    async with world(default=GroupLimits(max_session_cost=of_group)) as w:
        key = await w.caller(max_session_cost=of_key or None)
        if of_account:
            await AccountLimits(w.store, w.accounts).change("acme", max_session_cost=of_account)
        hold = await ask(w, key, 500)
        with pytest.raises(errors.SessionBudgetExceeded):
            await ask(w, key, 1)
        await settle(w, hold, 700)  # more than the hold, and the session has nothing left for it
        assert await charges(w) == [(500, 200)]
        await assert_session(w, spent=500, held=0)


async def test_nothing_is_stored_of_a_session_without_a_limit(world: Any) -> None:
    async with world() as w:
        key = await w.caller()
        await settle(w, await ask(w, key, 600), 600)
        assert await w.store.client.exists(SESSION) == 0
        limited = await w.caller(max_session_cost=1000)
        await settle(w, await ask(w, limited, 600, ""), 600)
        assert [name async for name in w.store.client.scan_iter("*:ss:*")] == []


async def test_charge_above_the_hold_takes_only_what_other_calls_of_the_session_do_not_hold(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        first, second = await ask(w, key, 300), await ask(w, key, 500)
        await settle(w, first, 5000)
        assert await charges(w) == [(500, 4500)]  # the hold, and 200 that were free
        await assert_session(w, spent=500, held=500)
        await settle(w, second, 500)
        await assert_session(w, spent=1000, held=0)


async def test_calls_that_are_settled_together_take_the_rest_of_the_session_once(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        holds = [await ask(w, key, 300) for _ in range(3)]
        for hold in holds:
            w.ledger.book(hold, record_of(400, session="agent-7"))
        await w.ledger.drain()
        assert sorted(await charges(w)) == [(300, 100), (300, 100), (400, 0)]
        await assert_session(w, spent=1000, held=0)


async def test_stream_is_not_extended_past_the_sessions_budget(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        hold = await ask(w, key, 300)
        await ask(w, key, 500)
        with pytest.raises(errors.SessionBudgetExceeded):
            await w.ledger.extend(hold, 201)
        await w.ledger.extend(hold, 200)
        await assert_session(w, spent=0, held=1000)


async def test_void_call_and_one_that_costs_nothing_free_the_session(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        first, second = await ask(w, key, 400), await ask(w, key, 600)
        w.ledger.book(first, None)
        await settle(w, second, 0)
        await assert_session(w, spent=0, held=0)


async def test_reclaimed_call_counts_for_the_session_and_within_its_budget(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        hold = await ask(w, key, 300)
        await ask(w, key, 600)
        hold.used = 900
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        await assert_session(w, spent=400, held=600)
        await settle(w, hold, 950)  # the worker was only paused: nothing more is free
        await assert_session(w, spent=400, held=600)


async def test_late_settlement_counts_for_the_session(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        hold = await ask(w, key, 300)
        await w.store.client.delete("{a:acme}:rv", "{a:acme}:rx")
        await w.store.client.hset("{a:acme}", "held", 0)
        await w.store.client.hset(SESSION, "held", 0)
        await settle(w, hold, 200)
        await assert_session(w, spent=200, held=0)


async def test_refund_gives_the_session_its_money_back_and_never_more(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        hold = await ask(w, key, 300)
        await settle(w, hold, 300)
        await w.ledger.refund("acme", hold.request_id, amount=100)
        await assert_session(w, spent=200, held=0)
        await w.store.client.hset(SESSION, "spent", 50)
        await w.ledger.refund("acme", hold.request_id)
        await assert_session(w, spent=0, held=0)


@pytest.mark.holds("prices.md#budgets-of-sessions-3")
async def test_budget_begins_again_a_day_after_the_first_call(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        old = await ask(w, key, 900)
        left = await w.store.client.pttl(SESSION)
        assert 86_000_000 < left <= 86_400_000
        await ask(w, key, 50)
        assert await w.store.client.pttl(SESSION) <= left
        await w.store.client.delete(SESSION)  # as if the day had passed
        new = await ask(w, key, 1000)
        await settle(w, old, 900)  # of the day before: it changes nothing of this one
        await assert_session(w, spent=0, held=1000)
        await settle(w, new, 10)
        await assert_session(w, spent=10, held=0)


async def test_call_of_a_session_whose_day_passed_meanwhile_leaves_nothing_in_the_store(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        first, second = await ask(w, key, 300), await ask(w, key, 300)
        await w.store.client.delete(SESSION)
        await w.ledger.extend(first, 100)
        await settle(w, first, 400)
        await w.expire(second)
        await w.ledger.reclaim("acme")
        assert await w.store.client.exists(SESSION) == 0
        await w.proved()


async def test_changed_limits_hold_for_the_next_call(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        await settle(w, await ask(w, key, 600), 600)
        await w.edit_key(key.id, max_session_cost=700)
        with pytest.raises(errors.SessionBudgetExceeded, match=r"0\.0000001 is left"):
            await ask(w, key, 101)
        await w.edit_key(key.id, clear=["max_session_cost"])
        await ask(w, key, 5000)
        await assert_session(w, spent=600, held=0)


async def test_hold_is_lowered_to_what_the_session_has_left(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        quote = structs.replace(quote_of(5000, session="agent-7"), share=1, least=10)
        assert (await w.ledger.admit("lowered", key, quote)).amount == 1000
        with pytest.raises(errors.SessionBudgetExceeded):
            await w.ledger.admit("more", key, quote)


async def test_keys_of_a_session_are_in_the_slot_of_its_account(world: Any) -> None:
    async with world() as w:
        key = await w.caller(max_session_cost=1000)
        await settle(w, await ask(w, key, 300), 300)
        names = [name.decode() async for name in w.store.client.scan_iter("*acme*")]
        assert SESSION in names and all(name.startswith("{a:acme}") for name in names)

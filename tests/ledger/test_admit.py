"""Who is admitted, who is refused, and that a refusal leaves no trace."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gateway import errors
from gateway.ledger import GroupLimits, Ledger
from gateway.ledger.admission import MAX_TRIES
from gateway.ledger.scripts import Scripts
from gateway.store import Store
from tests.ledger.moving import Moving
from tests.ledger.records import settle, void
from tests.ledger.shards import without
from tests.polling import until

UNIT = 1_000_000_000


async def assert_refused(world, error: type[errors.GatewayError], admit: Awaitable[object]) -> errors.GatewayError:
    """Await an admission that must fail so, and compare all of the store before and after."""
    before = await world.dump()
    with pytest.raises(error) as caught:
        await admit
    assert type(caught.value) is error
    assert await world.dump() == before
    return caught.value


@pytest.mark.holds("README.md#model-gateway-1", "prices.md#what-is-held-1")
async def test_admission_holds_the_worst_cost(world):
    async with world() as w:
        key = await w.caller(balance=5000)
        hold = await w.admit(key, 3000)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (5000, 3000)
        assert (hold.amount, hold.rates) == (3000, None)
        await w.proved()


async def test_revoked_key_is_refused_by_the_very_next_admission(world):
    async with world() as w:
        key = await w.caller()
        await w.admit(key)
        await w.keys.revoke(key.id)
        await assert_refused(w, errors.InvalidApiKey, w.admit(key))


async def test_expired_key_is_refused(world):
    async with world() as w:
        key = await w.caller(expires=datetime.now(UTC) + timedelta(days=30))
        await w.admit(key)
        await w.store.client.hset(f"{{a:acme}}:k:{key.id}", "exp", int(datetime.now(UTC).timestamp()))
        await assert_refused(w, errors.InvalidApiKey, w.admit(key))


async def test_disabled_account_is_refused_until_enabled(world):
    async with world() as w:
        key = await w.caller()
        await w.accounts.disable("acme")
        error = await assert_refused(w, errors.InsufficientPermissions, w.admit(key))
        assert "disabled" in error.message
        await w.accounts.enable("acme")
        await w.admit(key)


async def test_account_that_the_store_has_lost_is_unavailable_and_no_invalid_key(world):
    async with world() as w:
        key = await w.caller()
        await w.store.client.delete("{a:acme}")
        await assert_refused(w, errors.StoreUnavailable, w.admit(key))


async def test_model_of_another_group_is_refused(world):
    async with world() as w:
        key = await w.caller()
        await assert_refused(w, errors.ModelNotPermitted, w.admit(key, groups=frozenset({"gold"})))


async def test_account_rules_override_the_group_and_key_rules_override_both(world):
    async with world() as w:
        key = await w.caller()
        picky = await w.caller(models=["n", "o"])
        await w.accounts.allow("acme", ["n"])
        await w.admit(key, model="n", groups=frozenset())
        await w.admit(picky, model="n", groups=frozenset())
        await w.accounts.deny("acme", ["n", "m"])
        for caller, model in ((key, "n"), (key, "m"), (picky, "n"), (picky, "m"), (picky, "no"), (picky, "n\no")):
            await assert_refused(w, errors.ModelNotPermitted, w.admit(caller, model=model))
        await w.accounts.allow("acme", ["m"])
        await w.admit(key)
        await assert_refused(w, errors.ModelNotPermitted, w.admit(picky))


@pytest.mark.holds("operations/audit.md#late-and-uncollected-5")
async def test_balance_that_does_not_cover_the_hold_is_refused(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        await assert_refused(w, errors.BalanceExhausted, w.admit(key, 1001))
        await w.admit(key, 1000)
        await assert_refused(w, errors.BalanceExhausted, w.admit(key, 1))


async def test_free_call_needs_no_balance(world):
    async with world() as w:
        key = await w.caller(balance=0)
        await settle(w.ledger, await w.admit(key, 0), 0)
        await w.proved()


async def test_budget_counts_what_is_spent_and_what_is_held(world):
    async with world() as w:
        key = await w.caller(budget=1000)
        await settle(w.ledger, await w.admit(key, 600), 400)
        await w.admit(key, 500)
        await assert_refused(w, errors.BudgetExceeded, w.admit(key, 101))
        await w.admit(key, 100)
        other = await w.caller()
        await w.admit(other, 5000)
        await w.proved()


async def test_concurrency_of_the_key_is_freed_at_settlement(world):
    async with world() as w:
        key = await w.caller(concurrency=2)
        first = await w.admit(key)
        await w.admit(key)
        error = await assert_refused(w, errors.ConcurrencyLimited, w.admit(key))
        assert error.headers()["Retry-After"] == "1"
        await void(w.ledger, first)
        await w.admit(key)


async def test_admissions_of_one_tick_count_against_the_concurrency_limit(world):
    async with world(default=GroupLimits(concurrency=3)) as w:
        one, two = await w.caller(concurrency=1), await w.caller()
        asks = [w.admit(one), w.admit(one), w.admit(two), w.admit(two), w.admit(two)]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        assert [isinstance(answer, errors.ConcurrencyLimited) for answer in answers] == [
            False,
            True,
            False,
            False,
            True,
        ]


async def test_concurrency_of_the_group_counts_all_keys_of_the_account(world):
    async with world(default=GroupLimits(concurrency=2)) as w:
        one, two, other = await w.caller(), await w.caller(), await w.caller("umbra")
        await w.admit(one)
        hold = await w.admit(two)
        await assert_refused(w, errors.ConcurrencyLimited, w.admit(one))
        await w.admit(other)
        await w.expire(hold)
        third = await w.admit(one)
        await assert_refused(w, errors.ConcurrencyLimited, w.admit(two))
        await settle(w.ledger, third, 0)
        await w.admit(two)


async def test_hundred_concurrent_admissions_with_a_balance_for_ten_admit_ten(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        answers = await asyncio.gather(*(w.admit(key, 1000) for _ in range(100)), return_exceptions=True)
        assert sum(not isinstance(answer, Exception) for answer in answers) == 10
        assert sum(isinstance(answer, errors.BalanceExhausted) for answer in answers) == 90
        assert (await w.accounts.show("acme")).held == 10_000
        await w.proved()


@pytest.mark.holds("scaling.md#limits-4")
async def test_two_workers_share_one_balance(world):
    async with world() as w, another_worker(w) as ledger:
        key = await w.caller(balance=10_000)
        asks = [w.ask(key, 1000) for _ in range(60)]
        admissions = [(w.ledger, ledger)[n % 2].admit(*ask) for n, ask in enumerate(asks)]
        answers = await asyncio.gather(*admissions, return_exceptions=True)
        assert sum(not isinstance(answer, Exception) for answer in answers) == 10
        await w.proved()


async def test_outdated_cached_group_is_corrected_by_the_store(world):
    async with world(gold=GroupLimits(rpm=7)) as w:
        key = await w.caller()
        await w.admit(key)
        await w.accounts.move("acme", "gold")
        await assert_refused(w, errors.ModelNotPermitted, w.admit(key))
        hold = await w.admit(key, groups=frozenset({"gold"}))
        assert hold.rates is not None and hold.rates.limit_requests == 7
        await w.accounts.move("acme", "default")
        assert (await w.admit(key)).rates is None


async def test_admission_that_gives_up_on_a_changing_group_voids_nothing(world):
    async with world() as w:
        key = await w.caller()
        await w.admit(key)  # the store knows the script from here on
        moving = Moving(w.store, "acme")
        ledger = Ledger(cast("Any", moving), {})
        before = await w.dump()
        with pytest.raises(errors.StoreUnavailable) as caught:
            await ledger.admit(*w.ask(key))
        assert caught.value.log_text() == "refused: the account's group or prices keep changing"
        await ledger.drain()
        await w.store.ping()  # whatever the give-up has sent is in the store before this answers
        assert moving.sent == [Scripts.load().admit.sha1] * MAX_TRIES
        await w.accounts.move("acme", "default")
        assert await w.dump() == before


async def test_callers_of_an_unreachable_store_get_the_fate_never_sent(world):
    async with world() as w:
        key = await w.caller()
        ledger = Ledger(without(w.store, "acme"), {})
        waiting = [ledger.admit(*w.ask(key)) for _ in range(2)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert [answer.fate for answer in answers] == [errors.StoreFate.NEVER_SENT] * 2


async def test_limits_replaced_at_a_reload_apply_to_the_next_admission(world):
    async with world() as w:
        key = await w.caller()
        await w.admit(key)
        w.ledger.use_groups({"default": GroupLimits(rpm=1)})
        await w.admit(key)
        await assert_refused(w, errors.RequestRateLimited, w.admit(key))


async def test_repeated_admission_is_one_hold(world):
    async with world() as w:
        key = await w.caller(balance=1000, rpm=1)
        ask = w.ask(key, 1000)
        first = await w.ledger.admit(*ask)
        before = await w.dump()
        again = await asyncio.gather(w.ledger.admit(*ask), w.ledger.admit(*ask))
        assert [hold.admitted_at for hold in again] == [first.admitted_at] * 2
        assert await w.dump() == before
        await settle(w.ledger, first, 7)
        await assert_refused(w, errors.Conflict, w.ledger.admit(*ask))


async def test_same_request_twice_in_one_tick_is_one_hold(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        ask = w.ask(key, 600)
        await asyncio.gather(w.ledger.admit(*ask), w.ledger.admit(*ask))
        assert (await w.accounts.show("acme")).held == 600
        await w.proved()


async def test_caller_that_disconnects_while_waiting_leaves_no_hold(world):
    async with world() as w:
        key = await w.caller()
        waiting = asyncio.ensure_future(w.admit(key))
        await asyncio.sleep(0)
        waiting.cancel()
        await until(lambda: settled(w))
        await w.proved()


async def test_hold_of_a_dead_worker_is_reclaimed_when_its_money_is_needed(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        hold = await w.admit(key, 900)
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.admit(key, 700)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (700, 700)
        await w.proved()


async def test_admissions_beyond_one_batch_are_all_answered(world):
    async with world() as w:
        keys = [await w.caller(), await w.caller("umbra")]
        holds = await asyncio.gather(*(w.admit(keys[n % 2], 1) for n in range(300)))
        assert len({hold.request_id for hold in holds}) == 300
        assert [(await w.accounts.show(name)).held for name in ("acme", "umbra")] == [150, 150]
        await w.proved()


async def test_largest_amounts_stay_exact(world):
    async with world() as w:
        most = 9_000_000 * UNIT
        key = await w.caller(balance=most)
        hold = await w.admit(key, most - 1)
        await assert_refused(w, errors.BalanceExhausted, w.admit(key, 2))
        await w.admit(key, 1)
        await settle(w.ledger, hold, most - 3)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (3, 1)
        await w.proved()


@pytest.mark.parametrize("tokens", [10**14, 2**53 + 1, 2**63 - 1])
async def test_call_that_may_make_any_number_of_tokens_is_settled(world, tokens):
    async with world() as w:
        key = await w.caller()
        settled, expired = [await w.admit(key, 1000, tokens) for _ in range(2)]
        await settle(w.ledger, settled, 400)
        await w.expire(expired)
        assert await w.ledger.reclaim("acme") == 1
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10 * UNIT - 400, 0)
        await w.proved()


@pytest.mark.parametrize("wish", [{"hold": -1}, {"tokens": -1}])
async def test_negative_amounts_are_not_sent_to_the_store(world, wish):
    async with world() as w:
        await assert_refused(w, errors.InternalError, w.admit(await w.caller(), **wish))


async def test_argument_that_cannot_be_sent_fails_its_admission(world):
    async with world() as w:
        key = await w.caller()
        with pytest.raises(errors.GatewayError):
            await asyncio.wait_for(w.admit(key, model="\ud800"), 30)


async def test_error_inside_a_script_is_raised_for_every_caller(world, caplog):
    async with world() as w:
        key = await w.caller()
        hold = await w.admit(key)
        await w.store.client.delete("{a:acme}:rv")
        await w.store.client.set("{a:acme}:rv", "not a hash")
        waiting = [w.admit(key), w.admit(key), settle(w.ledger, hold, 1)]
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
        assert [type(answer) for answer in answers[:2]] == [errors.InternalError] * 2
        assert "WRONGTYPE" in answers[0].detail
        (told,) = [text for text in caplog.messages if text.startswith(f"{hold.request_id}: settlement of 1 nano")]
        assert "WRONGTYPE" in told


async def settled(world) -> bool:
    return (await world.accounts.show("acme")).held == 0 and not await world.store.client.exists("{a:acme}:rv")


@asynccontextmanager
async def another_worker(world) -> AsyncIterator[Ledger]:
    """A ledger with a link of its own, as another process has it."""
    store = await Store.open(world.store.address, timeout=5.0)
    try:
        yield Ledger(store, {})
    finally:
        await store.close()

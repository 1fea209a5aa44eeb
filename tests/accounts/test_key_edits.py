"""Keys are edited and rotated; budgets have periods, and a call a most."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from gateway import errors
from gateway.admin.refunds import Refunds
from gateway.errors import InvalidValue
from tests.admin.services import ROOT
from tests.ledger.records import quote_of, settle

ACME = "{a:acme}"
DAY = timedelta(days=1)


async def period_passes(w, key) -> None:
    """The current period of the key's budget becomes an earlier one."""
    await w.store.client.hset(f"{ACME}:k:{key.id}", "period", "2020-01")


async def test_edit_changes_what_the_next_call_may_do(world):
    async with world() as w:
        key = await w.caller(rpm=5, models=["m"], name="before")
        edited = await w.edit_key(key.id, name="after", models=["n"], concurrency=1, clear=["rpm"])
        assert (edited.name, edited.models, edited.concurrency, edited.rpm) == ("after", ["n"], 1, None)
        with pytest.raises(errors.ModelNotPermitted):
            await w.admit(key, model="m")
        await w.admit(key, model="n")
        with pytest.raises(errors.ConcurrencyLimited):
            await w.admit(key, model="n")
        await w.proved()


async def test_key_that_loses_its_name_is_shown_and_rotated(world):
    async with world() as w:
        key = await w.caller(name="before")
        assert (await w.edit_key(key.id, name="")).name == ""
        rotated = await w.rotate_key(key.id, overlap=DAY)
        assert rotated.new.name == "" and len(await w.keys.list("acme")) == 2


async def test_key_without_special_settings_has_no_flag(world):
    async with world() as w:
        key = await w.caller(budget=1000)
        await w.edit_key(key.id, every="day", max_cost=5, endpoints=["chat"], addresses=["10.1.2.3/8"])
        shown = await w.keys.show(key.id)
        assert (shown.every, shown.max_cost, shown.endpoints, shown.addresses) == ("day", 5, ["chat"], ["10.0.0.0/8"])
        cleared = await w.edit_key(key.id, clear=["every", "max_cost", "endpoints", "addresses"])
        assert (cleared.every, cleared.max_cost, cleared.endpoints, cleared.addresses) == (None, None, None, None)
        assert cleared.budget == 1000
        assert not await w.store.client.hexists(f"{ACME}:k:{key.id}", "own")


async def test_budget_of_a_period_begins_again_with_the_next_one(world):
    async with world() as w:
        key = await w.caller(budget=1000, every="month")
        await settle(w.ledger, await w.admit(key, 600), 600)
        with pytest.raises(errors.BudgetExceeded):
            await w.admit(key, 401)
        running = await w.admit(key, 300)
        await period_passes(w, key)
        shown = await w.keys.show(key.id)
        assert (shown.spent, shown.period_spent) == (600, 0)
        with pytest.raises(errors.BudgetExceeded):
            await w.admit(key, 701)
        await settle(w.ledger, running, 200)
        shown = await w.keys.show(key.id)
        assert (shown.spent, shown.period_spent) == (800, 200)
        await w.admit(key, 800)
        await w.proved()


async def test_cost_above_the_hold_stays_within_the_budget_of_the_period(world):
    async with world() as w:
        key = await w.caller(budget=1000, every="week")
        await settle(w.ledger, await w.admit(key, 900), 900)
        await w.store.client.hset(f"{ACME}:k:{key.id}", "period", "w1")
        hold = await w.admit(key, 300)
        with pytest.raises(errors.BudgetExceeded):
            await w.ledger.extend(hold, 701)
        await settle(w.ledger, hold, 5000)
        shown = await w.keys.show(key.id)
        assert (shown.spent, shown.period_spent) == (1900, 1000)
        await w.proved()


async def test_reclaim_and_its_amendment_count_in_the_period(world):
    async with world() as w:
        key = await w.caller(budget=1000, every="day")
        await settle(w.ledger, await w.admit(key, 900), 900)
        hold = await w.admit(key, 50)
        await w.store.client.hset(f"{ACME}:k:{key.id}", "period", "d1")
        hold.used = 2000
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        assert (await w.keys.show(key.id)).period_spent == 1000
        await w.store.client.hset(f"{ACME}:k:{key.id}", "period", "d2")
        await settle(w.ledger, hold, 300)
        shown = await w.keys.show(key.id)
        assert (shown.spent, shown.period_spent) == (1200, 0)  # what is given back is no credit for the new period
        await w.proved()


@pytest.mark.parametrize("same_period", [True, False])
async def test_refund_gives_back_to_the_period_of_its_charge_only(world, same_period):
    async with world() as w:
        key = await w.caller(budget=1000, every="month")
        hold = await w.admit(key, 600)
        await settle(w.ledger, hold, 600)
        if not same_period:
            [(_, fields)] = await w.store.client.xrevrange(f"{ACME}:lg", count=1)
            await w.store.client.delete(f"{ACME}:lg", f"{ACME}:st:{hold.request_id}")
            last_month = int((datetime.now(UTC) - 40 * DAY).timestamp() * 1000)
            await w.store.client.xadd(f"{ACME}:lg", fields, id=f"{last_month}-1")
        await Refunds(w.ledger).refund("acme", hold.request_id, 250)
        shown = await w.keys.show(key.id)
        assert (shown.spent, shown.period_spent) == (350, 350 if same_period else 600)


async def test_new_period_counts_what_was_charged_in_it_before(world):
    async with world() as w:
        key, other = await w.caller(budget=1000), await w.caller()
        for owner, cost in ((key, 100), (other, 70), (key, 200)):
            await settle(w.ledger, await w.admit(owner, 500), cost)
        lines = await w.store.client.xrange(f"{ACME}:lg")
        await w.store.client.delete(f"{ACME}:lg")
        long_ago = int((datetime.now(UTC) - 40 * DAY).timestamp() * 1000)
        for number, (id_, fields) in enumerate(lines):  # the first call was charged long ago
            await w.store.client.xadd(f"{ACME}:lg", fields, id=f"{long_ago}-{number}" if number < 2 else id_)
        edited = await w.edit_key(key.id, every="month")
        assert (edited.spent, edited.period_spent) == (300, 200)
        edited = await w.edit_key(key.id, every="never")
        assert (edited.every, edited.period_spent) == (None, 300)


async def test_period_of_a_command_that_was_killed_is_counted_by_the_next(world):
    async with world() as w:
        key = await w.caller(budget=1000)
        await settle(w.ledger, await w.admit(key, 500), 100)
        [last] = await w.store.client.xrevrange(f"{ACME}:lg", count=1)
        await w.edit_key(key.id, every="month")
        await w.store.client.hset(f"{ACME}:k:{key.id}", mapping={"base": 100, "efrom": last[0]})
        await settle(w.ledger, await w.admit(key, 500), 30)
        assert (await w.edit_key(key.id, every="month")).period_spent == 130


@pytest.mark.holds("prices.md#what-is-held-5")
async def test_call_that_may_cost_more_than_its_key_allows_is_refused_or_lowered(world):
    async with world() as w:
        key = await w.caller(max_cost=500)
        before = await w.dump()
        with pytest.raises(errors.CostLimitExceeded, match=r"0\.000000501, but .* at most 0\.0000005\."):
            await w.admit(key, 501)
        assert await w.dump() == before
        hold = await w.admit(key, 400)
        with pytest.raises(errors.CostLimitExceeded):
            await w.ledger.extend(hold, 101)
        await w.ledger.extend(hold, 100)
        lowerable = {"share": 1, "least": 100}
        quote = quote_of(9000)
        lowered = await w.ledger.admit("req_lowered", key, structs.replace(quote, **lowerable))
        assert lowered.amount == 500
        with pytest.raises(errors.CostLimitExceeded):
            await w.ledger.admit("req_least", key, structs.replace(quote, share=1, least=501))
        await w.proved()


async def test_last_use_is_noted_once_a_minute(world):
    async with world() as w:
        key = await w.caller()
        name = f"{ACME}:k:{key.id}"
        assert (await w.keys.show(key.id)).last_used is None
        with pytest.raises(errors.BalanceExhausted):
            await w.admit(key, 10**15)
        assert await w.store.client.hget(name, "used") is None
        await w.admit(key)
        noted = int(await w.store.client.hget(name, "used"))
        for earlier, is_noted in ((50, False), (70, True)):
            await w.store.client.hset(name, "used", noted - earlier)
            await w.admit(key)
            assert (int(await w.store.client.hget(name, "used")) >= noted) == is_noted


async def test_unused_keys_are_found_by_their_last_use_or_their_creation(world):
    async with world() as w:
        idle, busy, new, revoked = [await w.caller() for _ in range(4)]
        now = datetime.now(UTC)
        for key in (idle, busy, revoked):
            await w.store.client.hset(f"{ACME}:k:{key.id}", "created", int((now - 60 * DAY).timestamp()))
        await w.store.client.hset(f"{ACME}:k:{idle.id}", "used", int((now - 40 * DAY).timestamp()))
        await w.admit(busy)
        await w.keys.revoke(revoked.id)
        assert [key.id for key in await w.key_service.list(ROOT, "acme", unused_since=now - 30 * DAY)] == [idle.id]
        assert await w.key_service.list(ROOT, unused_since=now - 50 * DAY) == []
        assert new.id != idle.id


async def test_rotation_makes_a_key_with_the_same_settings_and_lets_the_old_one_expire(world):
    async with world() as w:
        settings = {
            "name": "ci",
            "rpm": 5,
            "tpm": 600,
            "concurrency": 2,
            "models": ["m"],
            "budget": 1000,
            "max_cost": 700,
            "endpoints": ["chat"],
        }
        old = await w.caller(**settings)
        rotated = await w.rotate_key(old.id, overlap=timedelta(hours=1))
        new = await w.keys.show(rotated.new.id)
        for name, value in settings.items():
            assert getattr(new, name) == value
        assert rotated.old.expires is not None
        assert abs(rotated.old.expires - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
        assert (await w.auth.authenticate(rotated.new.text)).id == new.id


@pytest.mark.parametrize("every", [None, "month"])
async def test_rotation_carries_on_what_was_spent_of_the_budget(world, every):
    async with world() as w:
        old = await w.caller(budget=1000, every=every)
        await settle(w.ledger, await w.admit(old, 600), 600)
        rotated = await w.rotate_key(old.id, overlap=timedelta(hours=1))
        new = await w.auth.authenticate(rotated.new.text)
        shown = await w.keys.show(new.id)
        assert (shown.spent, shown.period_spent) == (0, 600)
        with pytest.raises(errors.BudgetExceeded):
            await w.admit(new, 401)
        await settle(w.ledger, await w.admit(new, 400), 5000)
        assert (await w.keys.show(new.id)).period_spent == 1000
        again = await w.rotate_key(new.id, overlap=timedelta())
        assert (await w.keys.show(again.new.id)).period_spent == 1000
        await w.proved()


async def test_rotation_without_an_overlap_ends_the_old_key_at_once(world):
    async with world() as w:
        old = await w.caller()
        hold = await w.admit(old)
        await w.rotate_key(old.id, overlap=timedelta())
        with pytest.raises(errors.InvalidApiKey):
            await w.admit(old)
        assert await w.ledger.renew_leases([hold]) == {hold.request_id: "revoked"}
        with pytest.raises(errors.InvalidValue, match="is expired"):
            await w.rotate_key(old.id, overlap=DAY)


async def test_rotation_never_prolongs_the_old_key(world):
    async with world() as w:
        old = await w.caller(expires=datetime.now(UTC) + timedelta(hours=2))
        rotated = await w.rotate_key(old.id, overlap=DAY)
        assert rotated.old.expires == (await w.keys.show(rotated.new.id)).expires


@pytest.mark.parametrize(
    "change",
    [
        {"rpm": 0},
        {"budget": 0},
        {"max_cost": -1},
        {"every": "month"},
        {"every": "year", "budget": 5},
        {"models": []},
        {"endpoints": ["chat", "tea"]},
        {"addresses": ["10.0.0.0/33"]},
        {"addresses": ["localhost"]},
        {"addresses": [f"10.0.{n}.0/24" for n in range(65)]},
        {"expires": datetime(2020, 1, 1, tzinfo=UTC)},
        {"name": "x" * 101},
        {"clear": ["spent"]},
        {"rpm": 1, "clear": ["rpm"]},
    ],
)
async def test_impossible_settings_are_refused_and_change_nothing(world, change):
    async with world() as w:
        key = await w.caller()
        before = await w.dump()
        with pytest.raises(errors.InvalidValue):
            await w.edit_key(key.id, **change)
        if "clear" not in change:
            with pytest.raises(InvalidValue):
                await w.keys.create("acme", **change)
        assert await w.dump() == before


async def test_unknown_key_is_not_found(world):
    async with world() as w:
        await w.caller()
        for work in (
            w.edit_key("key_unknown", rpm=1),
            w.keys.show("key_unknown"),
            w.rotate_key("key_unknown", overlap=DAY),
        ):
            with pytest.raises(errors.NotFound):
                await work

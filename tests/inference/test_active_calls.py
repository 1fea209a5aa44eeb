"""Calls while they run: beats, extensions, and what becomes of holds nobody renews."""

import contextlib
from datetime import UTC, datetime

import pytest

from gateway import errors
from gateway.inference import active_calls
from gateway.inference.active_calls import ActiveCalls
from gateway.ledger import GroupLimits, Ledger
from gateway.ledger import ledger as ledger_module
from tests.ledger.records import settle, void
from tests.ledger.shards import without
from tests.leftovers import garbage
from tests.polling import until


async def test_renewal_extends_the_lease_and_stores_the_usage(world):
    async with world(default=GroupLimits(concurrency=1)) as w:
        key = await w.caller(balance=10_000, concurrency=1)
        hold = await w.admit(key, 5000)
        await w.expire(hold)
        hold.used = 700
        assert await w.ledger.renew_leases([hold]) == {hold.request_id: "ok"}
        assert await w.ledger.reclaim() == 0
        with pytest.raises(errors.ConcurrencyLimited):
            await w.admit(key)
        await w.expire(hold)
        assert await w.ledger.reclaim() == 1
        assert (await w.accounts.show("acme")).balance == 9300
        await w.proved()


async def test_checkpoint_never_decreases(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 700
        await w.ledger.renew_leases([hold])
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        assert (await w.accounts.show("acme")).balance == 9300


async def test_renewal_reports_revocation_disabling_and_expiry(world):
    async with world() as w:
        revoked, expired, alive = [await w.caller() for _ in range(3)]
        disabled = await w.caller("umbra")
        holds = [await w.admit(key) for key in (revoked, expired, alive, disabled)]
        await w.keys.revoke(revoked.id)
        await w.store.client.hset(f"{{a:acme}}:k:{expired.id}", "exp", int(datetime.now(UTC).timestamp()))
        await w.accounts.disable("umbra")
        answers = await w.ledger.renew_leases(holds)
        assert [answers[hold.request_id] for hold in holds] == ["revoked", "revoked", "ok", "revoked"]


async def test_renewal_reports_that_a_hold_is_gone(world):
    async with world() as w:
        hold = await w.admit(await w.caller())
        await settle(w.ledger, hold, 1)
        before = await w.dump()
        assert await w.ledger.renew_leases([hold]) == {hold.request_id: "gone"}
        assert await w.dump() == before


@pytest.mark.holds("scaling.md#costs-5")
async def test_more_calls_than_one_script_takes_are_all_renewed(world):
    async with world() as w:
        key = await w.caller()
        holds = [await w.admit(key, 1) for _ in range(70)]
        assert list((await w.ledger.renew_leases(holds)).values()) == ["ok"] * 70


async def test_reclaim_without_a_checkpoint_charges_nothing_and_is_marked(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await w.expire(hold)
        await w.ledger.reclaim()
        line = [line async for line in w.ledger.lines("acme")][-1]
        assert (line.kind, line.amount, line.request_id) == ("reclaim", 0, hold.request_id)
        assert line.json_form()["reclaimed"] is True
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000, 0)
        await w.proved()


async def test_repeated_extension_increases_the_hold_once(world):
    async with world() as w:
        key = await w.caller(balance=10_000, budget=9000)
        hold = await w.admit(key, 5000)
        await w.ledger.extend(hold, 1000)
        assert hold.amount == 6000
        hold.amount = 5000  # the reply was lost, the caller tries again
        await w.ledger.extend(hold, 1000)
        assert (await w.accounts.show("acme")).held == 6000
        await w.proved()


async def test_refused_extension_changes_nothing(world):
    async with world() as w:
        key, limited = await w.caller(balance=10_000), await w.caller(budget=5500)
        hold, budgeted = await w.admit(key, 2000), await w.admit(limited, 5000)
        before = await w.dump()
        with pytest.raises(errors.BalanceExhausted):
            await w.ledger.extend(hold, 3001)
        with pytest.raises(errors.BudgetExceeded):
            await w.ledger.extend(budgeted, 501)
        assert await w.dump() == before
        assert hold.amount == 2000
        await w.keys.revoke(key.id)
        with pytest.raises(errors.InvalidApiKey):
            await w.ledger.extend(hold, 1)
        await void(w.ledger, hold)
        with pytest.raises(errors.Conflict):
            await w.ledger.extend(hold, 1)
        await w.proved()


async def test_checkpoint_and_extension_are_independent(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 4100
        await w.ledger.renew_leases([hold])
        await w.ledger.extend(hold, 900)
        hold.used = 5600
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (4400, 0)
        await w.proved()


async def test_unreachable_shard_does_not_prevent_reclaims_on_others(world):
    async with world() as w:
        for name in ("acme", "beta", "umbra"):
            await w.expire(await w.admit(await w.caller(name)))
        torn = Ledger(without(w.store, "beta"), {})
        with pytest.raises(errors.StoreUnavailable):
            await torn.reclaim()
        assert {account.name: account.held for account in await w.accounts.list()} == {
            "acme": 0,
            "beta": 1000,
            "umbra": 0,
        }
        assert await w.ledger.reclaim() == 1


@pytest.mark.slow
async def test_unreachable_shard_leaves_nothing_to_the_garbage_collector(world, no_collector):
    async with world() as w:
        key = await w.caller("beta")
        torn = Ledger(without(w.store, "beta"), {})
        for attempt in (torn.reclaim(), torn.sweep(), torn.admit(*w.ask(key))):
            with contextlib.suppress(errors.StoreUnavailable):
                await attempt
        assert not garbage()


@pytest.mark.holds("scaling.md#costs-5")
async def test_sweeps_reach_every_account_a_few_at_a_time(world, monkeypatch):
    monkeypatch.setattr(ledger_module, "SWEEP", 20)
    async with world() as w:
        key = await w.caller("last")
        await w.store.client.sadd("accounts", *(f"account-{n}" for n in range(1000)))
        asked, reclaim = [], w.ledger._reclaim

        async def counted(account):
            asked.append(account)
            return await reclaim(account)

        w.ledger._reclaim = counted
        await w.expire(await w.admit(key))
        steps = 0
        while not await w.ledger.sweep():
            steps += 1
            assert len(asked) < 60 * steps  # a step may answer some more than was asked for
            assert steps < 200
        assert (await w.accounts.show("last")).held == 0
        await w.expire(await w.admit(key))  # and round again
        for _ in range(200):
            if await w.ledger.sweep():
                break
        else:
            pytest.fail("the second round did not find it")
        await w.store.client.srem("accounts", *(f"account-{n}" for n in range(1000)))  # or the audit would miss them
        await w.proved()


@pytest.mark.holds("scaling.md#costs-5")
async def test_worker_sweeps_when_it_renews_leases(world, monkeypatch):
    monkeypatch.setattr(active_calls, "RENEW_EVERY", 0.02)
    async with world() as w:
        await w.expire(await w.admit(await w.caller(), hold=1000))
        assert (await w.accounts.show("acme")).held == 1000
        worker = ActiveCalls(w.ledger, w.store)
        worker.start()
        try:

            async def released() -> bool:
                return (await w.accounts.show("acme")).held == 0

            await until(released)
        finally:
            await worker.close()
        assert (await w.accounts.show("acme")).held == 0
        await w.proved()

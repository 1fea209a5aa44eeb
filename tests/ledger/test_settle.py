"""Every call is charged once: repeated, late, amended, voided, absurd and old settlements."""

import asyncio
import time

import pytest

from gateway import errors
from gateway.billing.usage import Usage
from gateway.errors import InvalidValue
from tests.ledger.records import record_of, settle, void
from tests.ledger_lines import last_line

UNIT = 1_000_000_000


async def lines_of(world, account: str = "acme"):
    return [line async for line in world.ledger.lines(account)]


@pytest.mark.holds("prices.md#what-is-held-1")
async def test_settlement_charges_the_outcome_and_releases_the_rest(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        hold = await w.admit(key, 5000)
        await settle(w.ledger, hold, 1234, provider="openai", upstream_model="gpt", usage=Usage(in_text=7), attempts=2)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (8766, 0)
        line = (await lines_of(w))[-1]
        assert (line.n, line.kind, line.request_id, line.amount, line.balance) == (
            2,
            "use",
            hold.request_id,
            -1234,
            8766,
        )
        form = line.json_form()
        assert form["usage"] == {"in_text": 7}
        assert (form["provider"], form["model"], form["key"], form["attempts"]) == ("openai", "m", key.id, 2)
        assert form["upstream"] == "gpt"
        assert (form["amount"], form["balance"], form["estimated"]) == ("-0.000001234", "0.000008766", False)
        assert (await w.keys.list("acme"))[0].spent == 1234
        await w.proved()


@pytest.mark.holds(
    "README.md#model-gateway-1", "operations/redis.md#redis-for-production-9", "prices.md#what-is-collected-7"
)
async def test_repeated_settlement_changes_nothing(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await settle(w.ledger, hold, 100)
        before = await w.dump()
        await asyncio.gather(*(settle(w.ledger, hold, 999) for _ in range(5)))
        assert await w.dump() == before


async def test_queued_settlements_are_written_without_a_waiter(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        charged, voided = await w.admit(key, 5000), await w.admit(key, 5000)
        w.ledger.book(charged, record_of(1234))
        w.ledger.book(voided, None)
        await asyncio.gather(w.ledger.drain(), w.ledger.drain())
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (8766, 0)
        await w.proved()


async def test_failed_settlement_is_logged_and_drain_returns(world, caplog):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await w.store.client.delete("{a:acme}")
        w.ledger.book(hold, record_of(1234))
        await w.ledger.drain()
        assert f"{hold.request_id}: settlement of 1234 nano failed: there is no account acme" in caplog.text


async def test_two_settlements_of_one_call_in_one_tick_charge_once(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await asyncio.gather(settle(w.ledger, hold, 100), settle(w.ledger, hold, 200))
        assert [line.amount for line in await lines_of(w)][1:] == [-100]
        await w.proved()


async def test_settlement_with_a_lost_hold_is_charged(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await w.store.client.delete("{a:acme}:rv", "{a:acme}:rx")
        await w.store.client.hset("{a:acme}", "held", 0)
        for _ in range(2):
            await settle(w.ledger, hold, 100)
            assert [(line.amount, line.balance) for line in await lines_of(w)][1:] == [(-100, 9900)]
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-3")
@pytest.mark.parametrize(
    ("used", "true", "difference"), [(300, 450, -150), (300, 300, 0), (300, 120, 180), (0, 50, -50)]
)
async def test_worker_that_returns_after_a_reclaim_charges_only_the_difference(world, used, true, difference):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = used
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        for _ in range(2):
            await settle(w.ledger, hold, true)
            lines = (await lines_of(w))[1:]
            assert [(line.kind, line.amount) for line in lines] == [("reclaim", -used), ("adj", difference)]
            assert lines[-1].balance == 10_000 - true
        assert (await w.keys.list("acme"))[0].spent == true
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-7")
async def test_void_releases_everything_and_writes_a_line_of_no_amount(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await void(w.ledger, hold)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000, 0)
        line = (await lines_of(w))[1]
        assert (line.request_id, line.kind, line.amount, line.balance) == (hold.request_id, "use", 0, 10_000)
        assert line.meta == {"key": hold.key.id, "model": "m", "outcome": "abandoned", "hold": 5000}
        before = await w.dump()
        await void(w.ledger, hold)
        await settle(w.ledger, hold, 9)
        assert await w.dump() == before
        await w.proved()


async def test_void_after_a_reclaim_refunds_nothing(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        before = await w.dump()
        await void(w.ledger, hold)
        assert await w.dump() == before
        assert (await w.accounts.show("acme")).balance == 9700
        await w.proved()


@pytest.mark.parametrize("absurd", [-1, 10**18, -(10**18)])
async def test_impossible_amount_is_clamped_to_the_hold_and_marked(world, absurd):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await settle(w.ledger, hold, absurd)
        line = (await lines_of(w))[-1]
        assert line.amount == -5000
        assert line.json_form()["clamped"] is True
        assert line.json_form()["estimated"] is True
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-2")
async def test_cost_above_the_hold_is_charged_as_far_as_the_balance_goes(world):
    async with world() as w:
        key = await w.caller(balance=1500)
        hold = await w.admit(key, 1000)
        await settle(w.ledger, hold, 1300)
        assert (await w.accounts.show("acme")).balance == 200
        last = await w.admit(key, 150)
        await settle(w.ledger, last, 1300, usage=Usage(in_text=5))
        assert (await w.accounts.show("acme")).balance == 0
        first, second = (await lines_of(w))[1:]
        assert (first.amount, first.uncollected) == (-1300, 0)
        assert (second.amount, second.uncollected) == (-200, 1100)
        assert second.json_form()["uncollected"] == "0.0000011"
        assert "uncollected" not in first.json_form()
        assert (await w.ledger.charge_of("acme", last.request_id))[1] == 200
        assert (await w.keys.list("acme"))[0].spent == 1500
        await w.proved()


@pytest.mark.holds(
    "README.md#model-gateway-1", "operations/audit.md#late-and-uncollected-1", "prices.md#what-is-collected-1"
)
async def test_call_takes_no_money_that_another_call_holds(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        greedy, other = await w.admit(key, 100), await w.admit(key, 600)
        await settle(w.ledger, greedy, 10**9)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (600, 600)
        await settle(w.ledger, other, 600)
        assert [(line.amount, line.uncollected) for line in (await lines_of(w))[1:]] == [(-400, 10**9 - 400), (-600, 0)]
        await w.proved()


@pytest.mark.holds(
    "README.md#model-gateway-1", "operations/audit.md#late-and-uncollected-2", "prices.md#what-is-collected-1"
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_many_costs_above_their_holds_empty_the_balance_and_no_more(world, at_once):
    async with world() as w:
        key = await w.caller(balance=1000)
        holds = [await w.admit(key, 10) for _ in range(60)]
        if at_once:
            await asyncio.gather(*(settle(w.ledger, hold, 300) for hold in holds))
        else:
            for hold in holds:
                await settle(w.ledger, hold, 300)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (0, 0)
        lines = (await lines_of(w))[1:]
        assert sum(line.uncollected for line in lines) == 60 * 300 - 1000
        assert all(line.uncollected - line.amount == 300 for line in lines)
        assert min(line.balance for line in lines) == 0
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-1")
async def test_cost_above_the_hold_stays_within_the_budget_of_the_key(world):
    async with world() as w:
        key = await w.caller(balance=10_000, budget=210)
        holds = [await w.admit(key, 10) for _ in range(20)]
        await asyncio.gather(*(settle(w.ledger, hold, 300) for hold in holds))
        assert (await w.keys.list("acme"))[0].spent == 210
        assert (await w.accounts.show("acme")).balance == 10_000 - 210
        await w.proved()


async def test_budget_that_was_set_after_the_admission_leaves_the_hold_chargeable(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        hold = await w.admit(key, 500)
        await w.store.client.hset(f"{{a:acme}}:k:{key.id}", "cap", 600)
        await settle(w.ledger, hold, 9000)
        assert (await w.keys.list("acme"))[0].spent == 600
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-1")
async def test_charge_stops_at_the_floor_of_a_credit_line(world):
    async with world() as w:
        key = await w.caller(balance=100)
        hold = await w.admit(key, 100)
        await w.store.client.hset("{a:acme}", "floor", -50)
        await settle(w.ledger, hold, 1000)
        assert (await w.accounts.show("acme")).balance == -50
        assert (await lines_of(w))[-1].uncollected == 850


@pytest.mark.holds(
    "README.md#model-gateway-1",
    "operations/redis.md#redis-for-production-11",
    "operations/audit.md#late-and-uncollected-4",
    "prices.md#what-is-collected-5",
)
async def test_lost_hold_is_charged_up_to_its_amount_and_what_is_free_and_marked_late(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        lost, other = await w.admit(key, 300), await w.admit(key, 600)
        await w.store.client.hdel("{a:acme}:rv", lost.request_id)
        await w.store.client.zrem("{a:acme}:rx", lost.request_id)
        await w.store.client.hincrby("{a:acme}", "held", -300)
        await settle(w.ledger, lost, 5000)
        line = (await lines_of(w))[-1]
        assert (line.amount, line.uncollected, line.late) == (-700, 4300, True)
        await settle(w.ledger, other, 600)
        assert (await w.accounts.show("acme")).balance == -300
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-3")
async def test_reclaim_takes_no_money_that_another_call_holds(world):
    async with world() as w:
        key = await w.caller(balance=1000, budget=1000)
        dead, other = await w.admit(key, 100), await w.admit(key, 700)
        dead.used = 5000
        await w.ledger.renew_leases([dead])
        await w.expire(dead)
        await w.ledger.reclaim("acme")
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (700, 700)
        line = (await lines_of(w))[-1]
        assert (line.kind, line.amount, line.uncollected) == ("reclaim", -300, 4700)
        await settle(w.ledger, dead, 6000)
        assert (await w.accounts.show("acme")).balance == 700
        await settle(w.ledger, other, 200)
        lines = (await lines_of(w))[1:]
        of_dead = [one for one in lines if one.request_id == dead.request_id]
        assert [(one.kind, one.amount, one.uncollected) for one in of_dead] == [
            ("reclaim", -300, 4700),
            ("adj", 0, 1000),
        ]
        await w.proved()


@pytest.mark.holds("operations/audit.md#late-and-uncollected-6", "prices.md#what-is-collected-3")
async def test_amendment_collects_what_has_become_free_since_the_reclaim(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        dead, other = await w.admit(key, 100), await w.admit(key, 900)
        dead.used = 400
        await w.ledger.renew_leases([dead])
        await w.expire(dead)
        await w.ledger.reclaim("acme")
        await void(w.ledger, other)
        await settle(w.ledger, dead, 350)
        of_dead = [line for line in await lines_of(w) if line.request_id == dead.request_id]
        assert [(one.kind, one.amount, one.uncollected) for one in of_dead] == [
            ("reclaim", -100, 300),
            ("adj", -250, -300),
        ]
        assert (await w.accounts.show("acme")).balance == 650
        await w.proved()


@pytest.mark.holds("prices.md#what-is-collected-4")
async def test_debit_takes_only_free_money_unless_it_is_forced(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        hold = await w.admit(key, 700)
        with pytest.raises(InvalidValue, match=r"only 0\.0000003 is free"):
            await w.accounts.credit("acme", -301, allow_negative=True)
        assert (await w.accounts.credit("acme", -300, allow_negative=True)).balance == 700
        assert (await w.accounts.credit("acme", -1, allow_negative=True, force=True)).balance == 699
        await settle(w.ledger, hold, 9000)
        assert (await w.accounts.show("acme")).balance == -1  # the hold is charged, as the debit was forced
        await w.proved()


async def test_settlement_of_an_unknown_account_writes_nothing_and_is_logged(world, caplog):
    async with world() as w:
        hold = await w.admit(await w.caller())
        await w.store.client.flushall()
        await settle(w.ledger, hold, 5)
        assert await w.dump() == {}
    assert f"{hold.request_id}: settlement of 5 nano failed: there is no account acme" in caplog.text


async def test_old_settlement_without_a_marker_is_first_looked_up_in_the_ledger(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        done, lost = await w.admit(key, 100), await w.admit(key, 100)
        await settle(w.ledger, done, 40)
        await void(w.ledger, lost)
        day_ago = int((time.time() - 86_400) * 1e6)
        for hold in (done, lost):
            hold.admitted_at = day_ago
            await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        await settle(w.ledger, done, 40)
        assert [line.amount for line in await lines_of(w)][1:] == [-40, 0]
        await settle(w.ledger, lost, 30)
        assert [line.amount for line in await lines_of(w)][1:] == [-40, 0]
        assert (await w.accounts.show("acme")).balance == 10_000 - 40
        await w.proved()


async def test_line_of_a_request_is_found_by_its_id(world):
    async with world() as w:
        hold = await w.admit(await w.caller())
        assert await last_line(w.ledger, "acme", hold.request_id) is None
        await settle(w.ledger, hold, 77)
        line = await last_line(w.ledger, "acme", hold.request_id)
        assert line is not None and line.amount == -77


async def test_many_settlements_of_many_accounts_add_up(world):
    async with world() as w:
        keys = [await w.caller(name) for name in ("acme", "umbra", "zeta")]
        holds = await asyncio.gather(*(w.admit(keys[n % 3], 1000) for n in range(300)))
        await asyncio.gather(*(settle(w.ledger, hold, n) for n, hold in enumerate(holds)))
        balances = [(await w.accounts.show(key.account)).balance for key in keys]
        assert balances == [10 * UNIT - sum(range(start, 300, 3)) for start in range(3)]
        assert not [name async for name in w.store.client.scan_iter("*:r[vx]")]
        await w.proved()


async def test_settlement_without_a_store_and_a_journal_is_logged_as_lost(world, caplog):
    async with world() as w:
        hold = await w.admit(await w.caller())
        await w.store.close()
        await settle(w.ledger, hold, 5)
        assert f"{hold.request_id}: settlement of 5 nano failed: " in caplog.text
        with pytest.raises(errors.StoreUnavailable):
            await w.admit(hold.key)

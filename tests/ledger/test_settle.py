"""Every call is charged once: repeated, late, amended, voided, absurd and old settlements."""

import asyncio
import time

import pytest

from gateway import errors
from gateway.billing.usage import Usage
from gateway.ledger import Outcome

UNIT = 1_000_000_000


async def lines_of(world, account: str = "acme"):
    return [line async for line in world.ledger.lines(account)]


async def test_settlement_charges_the_outcome_and_releases_the_rest(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        hold = await w.admit(key, 5000)
        outcome = Outcome(1234, provider="openai", model="gpt", usage=Usage(in_text=7), tokens=9, attempts=2)
        settled = await w.ledger.settle(hold, outcome)
        assert (settled.status, settled.amount, settled.balance) == ("settled", 1234, 8766)
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
        assert (form["amount"], form["balance"], form["estimated"]) == ("-0.000001234", "0.000008766", False)
        assert (await w.keys.list("acme"))[0].spent == 1234
        await w.proved()


async def test_repeated_settlement_answers_what_was_stored(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await w.ledger.settle(hold, Outcome(100))
        before = await w.dump()
        again = await asyncio.gather(*(w.ledger.settle(hold, Outcome(999)) for _ in range(5)))
        assert {(s.status, s.amount, s.balance) for s in again} == {("duplicate", 100, 9900)}
        assert await w.dump() == before


async def test_booked_calls_are_settled_without_anybody_waiting(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        charged, voided = await w.admit(key, 5000), await w.admit(key, 5000)
        w.ledger.book(charged, Outcome(1234))
        w.ledger.book(voided, None)
        await asyncio.gather(w.ledger.drain(), w.ledger.drain())
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (8766, 0)
        await w.proved()


async def test_booking_that_fails_is_logged_and_nobody_waits_for_it_for_ever(world, caplog):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await w.store.client.delete("{a:acme}")
        w.ledger.book(hold, Outcome(1234))
        await w.ledger.drain()
        assert f"{hold.request_id}: settlement of 1234 nano failed: there is no account acme" in caplog.text


async def test_two_settlements_of_one_call_in_one_tick_charge_once(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        both = await asyncio.gather(w.ledger.settle(hold, Outcome(100)), w.ledger.settle(hold, Outcome(200)))
        assert [s.status for s in both] == ["settled", "duplicate"]
        assert both[1].amount == 100
        await w.proved()


async def test_settlement_whose_hold_was_lost_is_charged_all_the_same(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        await w.store.client.delete("{a:acme}:rv", "{a:acme}:rx")
        await w.store.client.hset("{a:acme}", "held", 0)
        settled = await w.ledger.settle(hold, Outcome(100))
        assert (settled.status, settled.balance) == ("late", 9900)
        assert (await w.ledger.settle(hold, Outcome(100))).status == "duplicate"
        await w.proved()


@pytest.mark.parametrize(
    ("used", "true", "difference"), [(300, 450, -150), (300, 300, 0), (300, 120, 180), (0, 50, -50)]
)
async def test_worker_that_returns_after_a_reclaim_books_only_the_difference(world, used, true, difference):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = used
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        settled = await w.ledger.settle(hold, Outcome(true))
        assert (settled.status, settled.amount, settled.balance) == ("amended", true, 10_000 - true)
        assert [line.amount for line in await lines_of(w)][1:] == [-used, difference]
        assert (await w.ledger.settle(hold, Outcome(true))).status == "duplicate"
        assert (await w.keys.list("acme"))[0].spent == true
        await w.proved()


async def test_void_releases_everything_and_writes_no_line(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        assert (await w.ledger.void(hold)).status == "void"
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000, 0)
        assert len(await lines_of(w)) == 1
        assert (await w.ledger.void(hold)).status == "duplicate"
        assert (await w.ledger.settle(hold, Outcome(9))).amount == 0
        await w.proved()


async def test_void_after_a_reclaim_gives_nothing_back(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        answer = await w.ledger.void(hold)
        assert (answer.status, answer.amount, answer.balance) == ("duplicate", 300, 9700)
        await w.proved()


@pytest.mark.parametrize("absurd", [-1, 10**18, -(10**18)])
async def test_absurd_amount_is_clamped_to_the_hold_and_marked(world, absurd):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        assert (await w.ledger.settle(hold, Outcome(absurd))).amount == 5000
        line = (await lines_of(w))[-1]
        assert line.json_form()["clamped"] is True
        assert line.json_form()["estimated"] is True
        await w.proved()


async def test_charge_above_the_hold_is_booked_in_full(world):
    async with world() as w:
        hold = await w.admit(await w.caller(balance=1000), 1000)
        assert (await w.ledger.settle(hold, Outcome(1300))).balance == -300
        await w.proved()


async def test_balance_far_below_zero_stays_exact_and_can_be_mended(world):
    async with world() as w:
        key = await w.caller(balance=7)
        holds = [await w.admit(key, 0) for _ in range(3)]
        settled = [await w.ledger.settle(hold, Outcome(9_000_000 * UNIT - 1)) for hold in holds]
        assert settled[-1].balance == 7 - 3 * (9_000_000 * UNIT - 1)
        assert (await w.accounts.credit("acme", 1)).balance == 8 - 3 * (9_000_000 * UNIT - 1)
        await w.proved()


async def test_settlement_of_an_unknown_account_is_an_error(world):
    async with world() as w:
        hold = await w.admit(await w.caller())
        await w.store.client.flushall()
        with pytest.raises(errors.InternalError):
            await w.ledger.settle(hold, Outcome(5))
        assert await w.dump() == {}


async def test_old_settlement_without_a_marker_looks_into_the_ledger_first(world):
    async with world() as w:
        key = await w.caller(balance=10_000)
        done, lost = await w.admit(key, 100), await w.admit(key, 100)
        await w.ledger.settle(done, Outcome(40))
        await w.ledger.void(lost)
        day_ago = int((time.time() - 86_400) * 1e6)
        for hold in (done, lost):
            hold.admitted_at = day_ago
            await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        again = await w.ledger.settle(done, Outcome(40))
        assert (again.status, again.amount) == ("duplicate", 40)
        assert (await w.ledger.settle(lost, Outcome(30))).status == "late"
        assert (await w.accounts.show("acme")).balance == 10_000 - 70
        await w.proved()


async def test_line_of_a_request_is_found_by_its_id(world):
    async with world() as w:
        hold = await w.admit(await w.caller())
        assert await w.ledger.line_of("acme", hold.request_id) is None
        await w.ledger.settle(hold, Outcome(77))
        line = await w.ledger.line_of("acme", hold.request_id)
        assert line is not None and line.amount == -77


async def test_many_settlements_of_many_accounts_add_up(world):
    async with world() as w:
        keys = [await w.caller(name) for name in ("acme", "umbra", "zeta")]
        holds = await asyncio.gather(*(w.admit(keys[n % 3], 1000) for n in range(300)))
        await asyncio.gather(*(w.ledger.settle(hold, Outcome(n)) for n, hold in enumerate(holds)))
        balances = [(await w.accounts.show(key.account)).balance for key in keys]
        assert balances == [10 * UNIT - sum(range(start, 300, 3)) for start in range(3)]
        assert not [name async for name in w.store.client.scan_iter("*:r[vx]")]
        await w.proved()


async def test_settlement_with_the_store_away_raises_without_a_journal(world):
    async with world() as w:
        hold = await w.admit(await w.caller())
        await w.store.close()
        with pytest.raises(errors.StoreUnavailable):
            await w.ledger.settle(hold, Outcome(5))
        with pytest.raises(errors.StoreUnavailable):
            await w.admit(hold.key)

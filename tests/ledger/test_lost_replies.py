"""Replies of the store get lost; calls are admitted all the same, and none is charged twice."""

import asyncio
from collections import Counter

import pytest

from gateway.errors import GatewayError, StoreUnavailable
from gateway.ledger import Hold, Journal, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import Store
from tests.chaos.proxy import ChaosProxy
from tests.ledger.records import quote_of, record_of
from tests.polling import until

pytestmark = pytest.mark.slow

CALLS = 2000
# A loss takes the replies of all calls that wait, so a few of them at once; 20 calls have 3.6 KB of replies.
AT_ONCE = 20
LOST_EACH = 15_000  # bytes of replies between two losses: that of 21 % of such groups
COST = 3


async def admitted(ledger: Ledger, key: ApiKey, number: int) -> Hold | None:
    try:
        return await ledger.admit(f"req_{number:032x}", key, quote_of(10, tokens=1))
    except StoreUnavailable:
        return None


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
async def test_lost_replies_cost_fewer_than_one_call_in_ten_and_charge_none_twice(world, valkey, tmp_path):
    async with world() as w, ChaosProxy(valkey) as proxy:
        key = await w.caller(balance=1_000_000)
        store = await Store.open(f"redis://127.0.0.1:{proxy.port}", timeout=3.0)
        journal = Journal(tmp_path / "journal")
        ledger = Ledger(store, {}, journal=journal)
        assert ledger.recovery is not None
        store.on_reconnect = ledger.recovery.reconnected
        numbers, served = iter(range(CALLS)), set[str]()

        async def caller() -> None:
            for number in numbers:
                hold = await admitted(ledger, key, number)
                if hold is not None:
                    ledger.book(hold, record_of(COST))
                    served.add(hold.request_id)

        await ledger.admit("req_" + "f" * 32, key, quote_of(0, tokens=1))  # the server has the script
        proxy.deafen_each = LOST_EACH
        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
        proxy.deafen_each = 0
        print(f"{len(served)} of {CALLS} calls admitted, {proxy.deafened} connections lost")
        assert proxy.deafened > 5
        assert len(served) >= CALLS * 9 // 10
        await ledger.drain()
        await until(lambda: not journal.unconfirmed)

        async def charged() -> Counter[str]:
            return Counter([line.request_id async for line in w.ledger.lines("acme") if line.amount == -COST])

        assert await charged() == Counter(served)
        assert (await w.accounts.show("acme")).balance == 1_000_000 - COST * len(served)
        await w.proved()
        await ledger.recovery.close()
        await store.close()
        journal.close()


@pytest.mark.holds("operations/redis.md#a-slow-store-1")
async def test_admission_that_was_executed_and_settled_before_its_second_copy_holds_nothing(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        hold = await w.admit(key, 100, request_id="req_" + "1" * 32)
        w.ledger.book(hold, record_of(COST))
        await w.ledger.drain()
        try:
            await w.admit(key, 100, request_id=hold.request_id)
        except GatewayError as error:
            assert error.status == 409
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (1000 - COST, 0)


@pytest.mark.holds("operations/redis.md#a-slow-store-1")
async def test_second_copy_of_an_admission_answers_with_the_first_hold(world):
    async with world() as w:
        key = await w.caller(balance=1000)
        first = await w.admit(key, 100, request_id="req_" + "1" * 32)
        second = await w.admit(key, 100, request_id=first.request_id)
        assert (second.amount, second.admitted_at) == (first.amount, first.admitted_at)
        assert (await w.accounts.show("acme")).held == 100

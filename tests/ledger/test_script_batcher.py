"""A batch is what its calls would have been one by one, and when one fails half way the ledger still adds up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway import errors
from gateway.amounts import MAX_AMOUNT
from gateway.billing.call_record import CallRecord
from gateway.ledger import GroupLimits
from tests.ledger.records import book, record_of, settle, void

GROUP = GroupLimits(rpm=1000, tpm=1_000_000, concurrency=100)
SLOW = GroupLimits(rpm=10, tpm=100, concurrency=100)  # its buckets do not drain, and go, within a test
ACCOUNT = "{a:acme}"


async def lost(world, hold) -> None:
    """Let a hold be gone, with the money it held and its leases."""
    client, name = world.store.client, f"{ACCOUNT}:k:{hold.key.id}"
    await client.hdel(f"{ACCOUNT}:rv", hold.request_id)
    for leases in ("rx", "cc", f"cc:{hold.key.id}"):
        await client.zrem(f"{ACCOUNT}:{leases}", hold.request_id)
    await client.hincrby(ACCOUNT, "held", -hold.amount)
    if await client.hexists(name, "cap"):
        await client.hincrby(name, "held", -hold.amount)


async def reclaimed(world, hold, used: int) -> None:
    hold.used = used
    await world.ledger.renew_leases([hold])
    await world.expire(hold)
    await world.ledger.reclaim("acme")


async def mixed_fates(world, keys) -> list[tuple[Any, CallRecord | None]]:
    """Calls and how they end, None for a void; in one batch all of them are there, some twice."""
    one, two, three = keys
    holds = [await world.admit(key, 1000 + n) for n in range(5) for key in keys]
    gone, back, mild, late, unpaid = [
        await world.admit(key, hold) for key, hold in ((one, 50), (two, 60), (three, 70), (one, 80), (two, 0))
    ]
    for hold, used in ((gone, 40), (back, 55), (mild, 0)):
        await reclaimed(world, hold, used)
    await lost(world, late)
    fates: list[tuple[Any, CallRecord | None]] = [(hold, record_of(100 * n, tokens=n)) for n, hold in enumerate(holds)]
    fates[4] = (holds[4], None)
    fates[7] = (holds[7], None)
    fates += [(holds[4], record_of(9)), (holds[3], record_of(9)), (holds[3], None)]  # each was settled or voided before
    fates += [(gone, record_of(90)), (gone, record_of(91)), (back, None), (back, record_of(5)), (mild, record_of(0))]
    fates += [(late, record_of(33, tokens=4)), (late, record_of(33)), (unpaid, record_of(1)), (unpaid, None)]
    return fates


async def state(world, keys) -> dict[str, Any]:
    """All of the account, but for times and random ids."""
    client = world.store.client
    names = {key.id: f"key {n}" for n, key in enumerate(keys)}
    fields = await client.hgetall(ACCOUNT)
    fields.pop(b"created")
    found: dict[str, Any] = {"account": fields, "lines": [], "markers": {}, "left": []}
    async for line in world.ledger.lines("acme"):
        key = names.get(line.meta.get("key"))
        found["lines"].append((line.n, line.request_id, line.kind, line.amount, line.balance, key, line.uncollected))
    for key in keys:
        sums = await client.hmget(f"{ACCOUNT}:k:{key.id}", "spent", "held")
        found[names[key.id]] = [int(value or 0) for value in sums]
    for name in sorted([name.decode() async for name in client.scan_iter(f"{ACCOUNT}:*")]):
        if ":st:" in name:
            found["markers"][name] = (await client.get(name)).split()[:2]
        elif name.rpartition(":")[2] in ("rv", "rx", "cc") or ":cc:" in name:
            found["left"].append(name)
    return found


async def ended(world, *, gather_all: bool, balance: int, fates: Any) -> dict[str, Any]:
    """The account after the same fates."""
    async with world(default=GROUP) as w:
        options = ({"budget": 10**6, "concurrency": 50, "tpm": 500_000}, {"tpm": 400_000}, {"budget": 10**7})
        keys = [await w.caller(balance=balance, **rest) for rest in options]
        made = await fates(w, keys)
        if gather_all:
            await asyncio.gather(*(book(w.ledger, *fate) for fate in made))
        else:
            for fate in made:
                await book(w.ledger, *fate)
        await w.proved()
        return await state(w, keys)


@pytest.mark.holds("prices.md#what-is-collected-1")
async def test_mixed_batch_settles_like_its_calls_one_by_one(world):
    single = await ended(world, gather_all=False, balance=10**9, fates=mixed_fates)
    batch = await ended(world, gather_all=True, balance=10**9, fates=mixed_fates)
    assert batch == single
    assert {kind for _, _, kind, *_ in batch["lines"]} == {"open", "use", "reclaim", "adj"}
    assert {kind for kind, _ in batch["markers"].values()} == {b"use", b"void"}
    assert batch["left"] == []


async def huge_fates(world, keys) -> list[tuple[Any, CallRecord | None]]:
    """Costs of which each alone is more than the whole balance."""
    amounts = (5, MAX_AMOUNT, 7_199_254_740_991, 1, 1, MAX_AMOUNT, MAX_AMOUNT - 1, 3, 0, 2, MAX_AMOUNT, 1)
    holds = [await world.admit(keys[n % 2], 0) for n in range(len(amounts))]
    return [(hold, record_of(amount)) for hold, amount in zip(holds, amounts, strict=True)]


@pytest.mark.parametrize("balance", [0, 1, 6, 7, MAX_AMOUNT])
async def test_batch_of_huge_costs_is_exact_to_the_nano(world, balance):
    single = await ended(world, gather_all=False, balance=balance, fates=huge_fates)
    batch = await ended(world, gather_all=True, balance=balance, fates=huge_fates)
    assert batch == single
    spent = sum(batch[f"key {n}"][0] for n in range(3))
    assert int(batch["account"][b"bal"]) == balance - spent
    assert int(batch["account"][b"bal"]) in (0, balance - 1_000_000 - 10_000_000, max(0, balance - 11_000_000))
    costs = 4 * MAX_AMOUNT + 7_199_254_740_991 + 12
    assert sum(uncollected for *_, uncollected in batch["lines"]) == costs - spent


@pytest.mark.parametrize("balance", [2**53 - 2, 2**53 - 1])
@pytest.mark.parametrize("amounts", [(1,), (1, 1, 1), (0, 2, 0)])
async def test_balance_at_the_limit_of_exact_doubles_stays_exact(world, balance, amounts):
    async with world() as w:
        key = await w.caller(balance=0)
        holds = [await w.admit(key, 0) for _ in amounts]
        await w.store.client.hset(ACCOUNT, "bal", balance)
        await asyncio.gather(*(settle(w.ledger, h, a) for h, a in zip(holds, amounts, strict=True)))
        lines = [line async for line in w.ledger.lines("acme")][1:]
        assert [line.balance for line in lines] == [balance - sum(amounts[: n + 1]) for n in range(len(amounts))]
        assert int(await w.store.client.hget(ACCOUNT, "bal")) == balance - sum(amounts)


@pytest.mark.holds("prices.md#what-is-collected-6")
@pytest.mark.parametrize("balance", [-9 * 10**15, -9 * 10**15 - 1, -(2**53) + 1, -(2**53), -(2**53) - 1])
@pytest.mark.parametrize("lost", [False, True])
async def test_balance_far_below_zero_of_an_older_version_is_not_changed_by_a_cost(world, balance, lost):
    async with world() as w:
        key = await w.caller(balance=10_000)
        hold = await w.admit(key, 1000 if lost else 0)
        if lost:
            await w.store.client.delete(f"{ACCOUNT}:rv", f"{ACCOUNT}:rx")
        await w.store.client.hset(ACCOUNT, "bal", balance)
        await settle(w.ledger, hold, 5)
        line = [line async for line in w.ledger.lines("acme")][-1]
        assert (line.amount, line.balance, line.uncollected, line.late) == (0, balance, 5, lost)
        assert int(await w.store.client.hget(ACCOUNT, "bal")) == balance


@pytest.fixture
def failed(caplog) -> Callable[..., Awaitable[None]]:
    """Books calls in one batch, all of which fail."""

    async def fail(world, *fates: tuple[Any, CallRecord | None]) -> None:
        caplog.clear()
        await asyncio.gather(*(book(world.ledger, *fate) for fate in fates))
        told = sorted(text.partition(":")[0] for text in caplog.messages if " nano failed: " in text)
        assert told == sorted(hold.request_id for hold, _ in fates)

    return fail


async def test_batch_that_cannot_write_its_first_line_changes_nothing(world, failed):
    async with world(default=SLOW) as w:
        key = await w.caller(balance=10_000, budget=9000, tpm=100)
        holds = [await w.admit(key, 1000) for _ in range(3)]
        client = w.store.client
        await client.rename(f"{ACCOUNT}:lg", f"{ACCOUNT}:elsewhere")
        await client.set(f"{ACCOUNT}:lg", "not a stream")
        before = await w.dump()
        await failed(w, *((hold, record_of(7)) for hold in holds))
        assert await w.dump() == before
        await client.rename(f"{ACCOUNT}:elsewhere", f"{ACCOUNT}:lg")
        await asyncio.gather(*(settle(w.ledger, hold, 7) for hold in holds))
        assert (await w.accounts.show("acme")).balance == 10_000 - 21
        await w.proved()


async def test_batch_that_fails_half_way_agrees_with_the_lines_it_wrote(world, failed):
    async with world(default=GROUP) as w:
        keys = [await w.caller(balance=10_000, budget=5000) for _ in range(2)]
        holds = [await w.admit(keys[n % 2], 1000) for n in range(5)]
        client = w.store.client
        most = 2**64 - 1
        await client.execute_command("XSETID", f"{ACCOUNT}:lg", f"{most}-{most - 3}")  # there is room for three lines
        await failed(w, *((hold, record_of(7 + n)) for n, hold in enumerate(holds)))
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - 24, 2000)
        assert [key.spent for key in sorted(await w.keys.list("acme"), key=lambda key: -key.spent)] == [16, 8]
        await w.proved()
        for hold in holds[:3]:
            await void(w.ledger, hold)
        assert (await w.ledger.charge_of("acme", holds[2].request_id))[1] == 9
        await failed(w, *((hold, None) for hold in holds[3:]))
        assert (await w.accounts.show("acme")).held == 2000
        await w.proved()


async def test_failure_to_end_leases_does_not_prevent_other_writes(world, failed):
    async with world(default=GROUP) as w:
        keys = [await w.caller(balance=10_000, budget=5000) for _ in range(2)]
        holds = [await w.admit(keys[n % 2], 1000) for n in range(4)]
        await w.store.client.delete(f"{ACCOUNT}:cc")
        await w.store.client.set(f"{ACCOUNT}:cc", "not a sorted set")
        await failed(w, *((hold, record_of(7)) for hold in holds))
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - 28, 0)
        for hold in holds:
            await settle(w.ledger, hold, 9)
        assert [(await w.ledger.charge_of("acme", hold.request_id))[1] for hold in holds] == [7] * 4
        assert (await w.accounts.show("acme")).balance == 10_000 - 28
        assert [found.rule for found in (await w.ledger.audit()).mismatches] == ["leases"]
        await w.store.client.delete(f"{ACCOUNT}:cc")
        await w.proved()


async def test_unreadable_hold_ends_its_batch_but_not_the_calls_before_it(world, failed):
    async with world() as w:
        key = await w.caller(balance=10_000)
        holds = [await w.admit(key, 1000) for _ in range(3)]
        records = await w.store.client.hgetall(f"{ACCOUNT}:rv")
        await w.store.client.hset(f"{ACCOUNT}:rv", holds[1].request_id, "?")
        await failed(w, *((hold, record_of(7)) for hold in holds))
        await w.store.client.hset(f"{ACCOUNT}:rv", holds[1].request_id, records[holds[1].request_id.encode()])
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - 7, 2000)
        await w.proved()


@pytest.mark.parametrize("ending", [record_of(7), None], ids=["use", "void"])
async def test_unreadable_token_bucket_does_not_interrupt_a_batch(world, ending, failed):
    async with world(default=SLOW) as w:
        hold = await w.admit(await w.caller(balance=10_000, budget=5000), 1000)
        await w.store.client.delete(f"{ACCOUNT}:tpm")
        await w.store.client.hset(f"{ACCOUNT}:tpm", "not", "a bucket")
        before = await w.dump()
        await failed(w, (hold, ending))
        assert await w.dump() == before
        await w.store.client.delete(f"{ACCOUNT}:tpm")
        await book(w.ledger, hold, ending)
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - (7 if ending else 0), 0)
        await w.proved()


@pytest.mark.holds("scaling.md#limits-3")
@pytest.mark.parametrize("ending", [record_of(7), None], ids=["use", "void"])
async def test_batch_on_a_store_without_memory_is_settled_later_as_a_whole(world, ending, failed):
    async with world(default=SLOW) as w:
        key = await w.caller(balance=10_000, budget=5000, tpm=100)
        fates = [(await w.admit(key, hold), ending) for hold in (1000, 0)]
        before = await w.dump()
        await w.store.client.config_set("maxmemory", 1)
        try:
            outcomes: Any = await asyncio.gather(w.admit(key), failed(w, *fates), return_exceptions=True)
            assert isinstance(outcomes[0], errors.StoreUnavailable)
        finally:
            await w.store.client.config_set("maxmemory", 0)
        assert await w.dump() == before
        await asyncio.gather(*(book(w.ledger, *fate) for fate in fates))
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - (14 if ending else 0), 0)
        await w.proved()


@pytest.mark.holds("scaling.md#costs-3")
async def test_holds_of_one_batch_add_up_per_account_and_budget(world):
    async with world() as w:
        keys = [await w.caller(balance=10_000, budget=3000), await w.caller(), await w.caller(budget=900)]
        asks = [w.admit(keys[n % 3], 400 + n) for n in range(12)]
        answers = await asyncio.gather(*asks, return_exceptions=True)
        admitted = [answer for answer in answers if not isinstance(answer, Exception)]
        assert [isinstance(answer, errors.BudgetExceeded) for answer in answers] == [n in (8, 11) for n in range(12)]
        assert (await w.accounts.show("acme")).held == sum(hold.amount for hold in admitted)
        await w.proved()


async def test_batch_that_reclaims_counts_the_holds_it_made_before(world):
    async with world() as w:
        key, other, revoked = [await w.caller(balance=10_000, budget=8000) for _ in range(3)]
        dead = await w.admit(other, 6000)
        dead.used = 500
        await w.ledger.renew_leases([dead])
        await w.expire(dead)
        await w.keys.revoke(revoked.id)
        asks = [w.admit(revoked, 1), w.admit(key, 3000), w.admit(key, 4000), w.admit(key, 1500), w.admit(other, 2500)]
        asks.append(w.admit(key, 1))
        answers = await asyncio.gather(*asks, return_exceptions=True)  # 3000 fit; 4000 when the dead hold is gone
        kinds = [type(answer).__name__ for answer in answers]
        assert kinds == ["InvalidApiKey", "Hold", "Hold", "BudgetExceeded", "Hold", "BalanceExhausted"]
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (9500, 9500)
        await w.proved()

"""Journals that are sent so late that the store has forgotten which of their calls are settled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.ledger import Hold, Journal, Ledger
from gateway.ledger.entry import Entry
from gateway.ledger.journal import SETTLED, read_entries
from gateway.ledger.line import PAGE
from gateway.ledger.recovery import TakenOver
from tests.ledger.records import settle
from tests.world import UNIT, World

TWO_DAYS = 2 * 86_400_000_000  # microseconds
CALLS = PAGE + 100  # of an account: two pages of lines


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch) -> None:
    """Several searches, each for several chunks of entries."""
    monkeypatch.setattr("gateway.ledger.recovery.CHUNK", 64)
    monkeypatch.setattr("gateway.ledger.recovery.MOST_OLD", CALLS)


async def calls_of(world: World, folder: Path, account: str, count: int) -> list[Hold]:
    """Calls that are settled and journaled by a process that has ended."""
    journal = Journal(folder)
    ledger = Ledger(world.store, {}, journal=journal)
    key = await world.caller(account)
    holds: list[Hold] = []
    while len(holds) < count:
        some = [await ledger.admit(*world.ask(key)) for _ in range(min(100, count - len(holds)))]
        await asyncio.gather(*(settle(ledger, hold, 5) for hold in some))
        holds += some
    journal.close()
    return holds


async def grow_old(world: World, folder: Path, *, without_line: int) -> None:
    """Two days pass: the markers have expired. The store has lost the last lines of each account, and its balance."""
    client: Any = world.store.client
    for account in await world.ledger.accounts():
        name = f"{{a:{account}}}"
        lines = await client.xrange(f"{name}:lg")
        await client.delete(f"{name}:lg", *[key async for key in client.scan_iter(f"{name}:st:*")])
        for id_, fields in lines[: len(lines) - without_line]:
            milliseconds, _, number = id_.decode().partition("-")
            await client.xadd(f"{name}:lg", fields, id=f"{int(milliseconds) - TWO_DAYS // 1000}-{number}")
        await client.hset(name, mapping={"seq": len(lines) - without_line})
        await client.hincrby(name, "bal", 5 * without_line)
        await client.hincrby(f"{name}:k:{(await only_key(world, account))}", "spent", -5 * without_line)
    for path in folder.glob("*.jsonl"):
        path.write_bytes(b"".join(msgspec.json.encode(aged(entry)) + b"\n" for entry in read_entries(path)))


async def only_key(world: World, account: str) -> str:
    (key,) = await world.keys.list(account)
    return key.id


def aged(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, at=entry.at - TWO_DAYS)


async def reads(world: World) -> int:
    """How often the store has read lines."""
    client: Any = world.store.client
    stats = await client.info("commandstats")
    return int(stats.get("cmdstat_xrange", {}).get("calls", 0))


async def test_ledger_is_read_once_for_all_old_entries_of_an_account(world, tmp_path):
    async with world() as w:
        for account in ("acme", "umbra"):
            await calls_of(w, tmp_path, account, CALLS)
        await grow_old(w, tmp_path, without_line=3)
        journal = Journal(tmp_path)
        heir = Ledger(w.store, {}, journal=journal)
        assert heir.recovery is not None
        before = await reads(w)
        assert await heir.recovery.take_over() == TakenOver(settlements=2 * CALLS)
        assert await reads(w) - before == 4  # two accounts with two pages of lines
        journal.close()
        for account in ("acme", "umbra"):
            lines = [line.request_id async for line in w.ledger.lines(account)]
            assert len(lines) == len(set(lines)) == CALLS + 1
            assert (await w.accounts.show(account)).balance == 10 * UNIT - 5 * CALLS
        await w.proved()


async def test_few_old_entries_are_in_flight_at_once(world, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.ledger.settlement_writer.OLD_AT_ONCE", 32)
    async with world() as w:
        for account in ("acme", "umbra"):
            await calls_of(w, tmp_path, account, 100)
        await grow_old(w, tmp_path, without_line=100)
        journal = Journal(tmp_path)
        heir = Ledger(w.store, {}, journal=journal)
        batches, in_flight, most = heir._writer._batches, 0, 0
        put, answered = batches.put, batches.on_answer

        def count_put(account: str, item: Any) -> None:
            nonlocal in_flight, most
            in_flight += item.entry.force
            most = max(most, in_flight)
            put(account, item)

        def count_answers(batch: Any, reply: list[Any]) -> None:
            nonlocal in_flight
            in_flight -= sum(item.entry.force for item in batch.items)
            answered(batch, reply)

        monkeypatch.setattr(batches, "on_answer", count_answers)
        monkeypatch.setattr(type(batches), "put", lambda self, account, item: count_put(account, item))
        assert heir.recovery is not None
        await heir.recovery.take_over()
        assert (most, in_flight) == (32, 0)
        journal.close()
        for account in ("acme", "umbra"):
            assert (await w.accounts.show(account)).balance == 10 * UNIT - 5 * 100
        await w.proved()


async def test_old_call_in_two_journals_is_charged_once(world, tmp_path):
    async with world() as w:
        (hold,) = await calls_of(w, tmp_path, "acme", 1)
        await grow_old(w, tmp_path, without_line=1)
        (path,) = tmp_path.glob("*.jsonl")
        path.write_bytes(path.read_bytes() * 2)
        journal = Journal(tmp_path)
        heir = Ledger(w.store, {}, journal=journal)
        assert heir.recovery is not None
        assert await heir.recovery.take_over() == TakenOver(settlements=2)
        journal.close()
        assert [line.request_id async for line in w.ledger.lines("acme") if line.kind == "use"] == [hold.request_id]
        await w.proved()


async def test_of_old_entries_only_those_whose_lines_may_have_left_the_store_are_set_aside(world, tmp_path):
    """None of the three calls has a line in the store, which has the lines from after the first one on."""
    async with world() as w:
        first, *_ = await calls_of(w, tmp_path, "acme", 3)
        await grow_old(w, tmp_path, without_line=3)
        at = (first.admitted_at - TWO_DAYS) // 1000
        (path,) = tmp_path.glob("*.jsonl")
        entries = list(read_entries(path))
        entries = [msgspec.structs.replace(one, at=one.at + number * 5000) for number, one in enumerate(entries)]
        path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in entries))
        path.rename(path.with_name(path.name.replace(SETTLED, ".jsonl")))  # a killed process did not confirm them
        await w.store.client.delete("{a:acme}:lg")
        await w.store.client.hset("{a:acme}:ca", mapping={"n": 1, "id": f"{at}-0", "bal": 10 * UNIT, "hash": ""})
        journal = Journal(tmp_path)
        heir = Ledger(w.store, {}, journal=journal)
        assert heir.recovery is not None
        await heir.recovery.take_over()
        assert [one.request_id for one in read_entries(tmp_path / "refused.jsonl")] == [first.request_id]
        assert (await w.accounts.show("acme")).balance == 10 * UNIT - 10
        journal.close()

"""Which settlements are set aside in `refused.jsonl`: those that are not booked, once each."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from gateway.ledger import Journal, Ledger
from gateway.ledger.journal import read_entries
from gateway.store.greeting import ServerIdentity
from tests.ledger.archiving import archive
from tests.ledger.records import record_of, settle
from tests.ledger.test_archive import aged
from tests.polling import until

DAY = 24 * 3600 * 1_000_000  # µs


@contextlib.asynccontextmanager
async def ruled_by(world, folder: Path) -> AsyncIterator[tuple[Ledger, Journal]]:
    journal = Journal(folder)
    ledger = Ledger(world.store, {}, journal=journal)
    try:
        yield ledger, journal
    finally:
        journal.close()


def set_aside(folder: Path) -> list[str]:
    return [found.request_id for found in read_entries(folder / "refused.jsonl")]


async def test_entry_is_set_aside_once_however_often_its_journal_is_sent(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        hold = await ledger.admit(*w.ask(await w.caller()))
        await w.store.client.flushall()
        await settle(ledger, hold, 5)
        assert ledger.recovery is not None
        for number in range(3):
            ledger.recovery.reconnected(ServerIdentity("a", ""), ServerIdentity(f"b{number}", ""))
            await until(lambda: journal.unconfirmed == 0)
        assert set_aside(tmp_path) == [hold.request_id]
        assert (tmp_path / "refused.jsonl").stat().st_mode & 0o777 == 0o600


async def test_release_without_a_charge_is_not_set_aside(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, _):
        hold = await ledger.admit(*w.ask(await w.caller()))
        await w.store.client.flushall()
        ledger.book(hold, None)
        await ledger.drain()
        assert not (tmp_path / "refused.jsonl").exists()


async def test_only_the_entry_that_fails_is_set_aside_of_a_batch(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, _):
        key = await w.caller()
        holds = [await ledger.admit(*w.ask(key)) for _ in range(5)]
        await w.store.client.hset("{a:acme}:rv", holds[2].request_id, "unreadable")
        for hold in holds:
            ledger.book(hold, record_of(5))
        await ledger.drain()
        assert set_aside(tmp_path) == [holds[2].request_id]
        assert (await w.accounts.show("acme")).balance == 10**10 - 4 * 5


async def test_old_entry_that_was_confirmed_before_a_stop_is_not_set_aside_after_its_line_was_archived(
    world, tmp_path, monkeypatch
):
    async with world() as w:
        journal = Journal(tmp_path / "journal")
        ledger = Ledger(w.store, {}, journal=journal)
        key = await w.caller()
        hold = await ledger.admit(*w.ask(key))
        await settle(ledger, hold, 5)
        journal.close()  # a usual stop, long ago
        await grow_old(tmp_path / "journal", w, hold.request_id)
        await aged(w)
        await archive(w, tmp_path / "archive")
        async with ruled_by(w, tmp_path / "journal") as (heir, _):
            assert heir.recovery is not None
            await heir.recovery.take_over()
        assert not (tmp_path / "journal" / "refused.jsonl").exists()
        assert (await w.accounts.show("acme")).balance == 10**10 - 5


async def grow_old(folder: Path, world, request_id: str) -> None:
    """Let the admission of a journaled call be two days ago, and its marker gone."""
    (path,) = folder.glob("*.jsonl")
    (found,) = read_entries(path)
    found.at -= 3 * DAY
    path.write_bytes(msgspec.json.encode(found) + b"\n")
    await world.store.client.delete(f"{{a:acme}}:st:{request_id}")

"""Nothing that was delivered goes unbilled: the store away, a dead worker, a failover that forgot."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.accounts import Accounts
from gateway.auth import Authenticator
from gateway.keys import Keys
from gateway.ledger import Ask, Hold, Journal, Ledger, Outcome
from gateway.ledger.entry import Entry
from gateway.ledger.journal import NOWHERE, read_entries
from gateway.ledger.recovery import Adopted
from gateway.store import EmbeddedServer, Store
from gateway.transport.redis_link import ServerIdentity
from tests.ledger.storms import append_only_file, on_disk

EVERYONE = frozenset({"default"})
PEPPER = b"0123456789abcdef0123456789abcdef"


def entry(rid: str) -> Entry:
    return Entry("acme", rid, "key_x", "use", -5, 1, 0, "{}")


async def until(condition, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def ruled_by(world, folder: Path) -> AsyncIterator[tuple[Ledger, Journal]]:
    journal = Journal(folder)
    ledger = Ledger(world.store, {}, journal=journal)
    try:
        yield ledger, journal
    finally:
        journal.close()


async def test_confirmed_settlements_leave_the_journal_after_a_while(world, tmp_path):
    async with world() as w:
        journal = Journal(tmp_path / "own", keep=0.0, segment_seconds=0.0)
        ledger = Ledger(w.store, {}, journal=journal)
        key = await w.caller()
        for _ in range(3):
            hold = await ledger.admit(w.ask(key))
            assert (await ledger.settle(hold, Outcome(5))).status == "settled"
        assert journal.unconfirmed == 0
        journal.sweep()
        assert list((tmp_path / "own").glob("*.jsonl")) == []
        journal.close()


async def test_nothing_is_forgotten_while_a_server_is_away(world, tmp_path):
    async with world() as w:
        journal = Journal(tmp_path / "own", keep=0.0, segment_seconds=0.0)
        ledger = Ledger(w.store, {}, journal=journal)
        await ledger.settle(await ledger.admit(w.ask(await w.caller())), Outcome(5))
        journal.store_is_whole = lambda: False
        journal.sweep()
        assert len(list((tmp_path / "own").glob("*.jsonl"))) == 1
        journal.store_is_whole = w.store.whole
        journal.sweep()
        assert list((tmp_path / "own").glob("*.jsonl")) == []
        journal.close()


async def test_failover_while_the_journal_is_being_sent_sends_it_again(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        await ledger.settle(await ledger.admit(w.ask(await w.caller())), Outcome(5))
        recovery = ledger.recovery
        assert recovery is not None
        send, sent = recovery._send, []

        async def send_and_fail_over(entries):
            total = await send(entries)
            sent.append(total)
            if len(sent) == 1:
                recovery.reconnected(ServerIdentity("b", "y"), ServerIdentity("c", "z"))
            return total

        recovery._send = send_and_fail_over
        recovery.reconnected(ServerIdentity("a", "x"), ServerIdentity("b", "y"))
        await until(lambda: not journal.unconfirmed)
        assert sent == [1, 1]


async def test_settlement_is_on_disk_before_it_is_in_the_store(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        hold = await ledger.admit(w.ask(await w.caller()))
        settling = asyncio.ensure_future(ledger.settle(hold, Outcome(5)))
        await until(lambda: journal.unconfirmed or settling.done())
        (path,) = tmp_path.glob("*.jsonl")
        assert [e.rid for e in read_entries(path)] == [hold.rid]
        assert path.stat().st_mode & 0o777 == 0o600
        await settling
        assert journal.unconfirmed == 0


async def test_store_away_at_settle_is_made_up_for_when_it_returns(tmp_path):
    server = EmbeddedServer(tmp_path / "store")
    await server.start()
    try:
        store = await Store.open(server.socket)
        journal = Journal(tmp_path / "journal")
        ledger = Ledger(store, {}, journal=journal)
        assert ledger.recovery is not None
        store.on_reconnect = ledger.recovery.reconnected
        accounts = Accounts(store, ledger)
        await accounts.create("acme", balance=10_000)
        key = await Authenticator(store, PEPPER).authenticate((await Keys(store, PEPPER).create("acme")).text)
        holds = [await ledger.admit(Ask(f"r{n}", key, "m", EVERYONE, 100)) for n in range(20)]
        await server.stop()
        settled = await asyncio.gather(*(ledger.settle(hold, Outcome(7)) for hold in holds))
        assert {s.status for s in settled} == {"journaled"}
        await server.start()
        await until(lambda: not journal.unconfirmed)
        assert (await accounts.show("acme")).balance == 10_000 - 140
        assert (await accounts.show("acme")).held == 0
        assert (await ledger.audit()).mismatches == []
        await ledger.recovery.close()
        journal.close()
        await store.close()
    finally:
        await server.stop()


async def test_failover_that_lost_the_tail_gets_it_again(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        key = await w.caller(balance=10_000)
        before = await w.store.client.dump("{a:acme}"), await w.store.client.dump("{a:acme}:lg")
        for _ in range(5):
            await ledger.settle(await ledger.admit(w.ask(key)), Outcome(10))
        await w.store.client.restore("{a:acme}", 0, before[0], replace=True)
        await w.store.client.restore("{a:acme}:lg", 0, before[1], replace=True)
        await w.store.client.delete(*[n async for n in w.store.client.scan_iter("*:st:*")])
        await w.store.client.hset(f"{{a:acme}}:k:{key.id}", "spent", 0)
        assert ledger.recovery is not None
        ledger.recovery.reconnected(ServerIdentity("a", "x"), ServerIdentity("b", "y"))
        await until(lambda: not journal.unconfirmed)
        assert (await w.accounts.show("acme")).balance == 10_000 - 50
        await w.proved()
        ledger.recovery.reconnected(ServerIdentity("b", "y"), ServerIdentity("c", "z"))
        await until(lambda: not journal.unconfirmed)
        assert (await w.accounts.show("acme")).balance == 10_000 - 50


class Forgetful:
    """A worker's ledger and journal on a store of its own that dies and forgets its last moment.

    While a sync of its file takes long, a server with `appendfsync everysec` answers before it writes, for up to two
    seconds; a kill -9 then loses what was answered. Here the end of the file is cut off instead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedServer(folder / "store")
        self.remembered = 0

    async def __aenter__(self) -> "Forgetful":
        await self.server.start()
        self.store = await Store.open(self.server.socket, timeout=10.0)
        self.journal = Journal(self.folder / "journal")
        self.ledger = Ledger(self.store, {}, journal=self.journal)
        assert self.ledger.recovery is not None
        self.recovery = self.ledger.recovery
        self.store.on_reconnect = self.recovery.reconnected
        self.accounts = Accounts(self.store, self.ledger)
        await self.accounts.create("acme", balance=10_000)
        text = (await Keys(self.store, PEPPER).create("acme")).text
        self.key = await Authenticator(self.store, PEPPER).authenticate(text)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.recovery.close()
        self.journal.close()
        await self.store.close()
        await self.server.stop()

    async def admit(self, rid: str) -> Hold:
        return await self.ledger.admit(Ask(rid, self.key, "m", EVERYONE, 100))

    async def remember(self) -> None:
        """What was until now outlives the server."""
        await on_disk(self.store)
        self.remembered = append_only_file(self.folder).stat().st_size

    async def die(self) -> None:
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGKILL)
        await until(lambda: not self.store.whole())

    async def come_back(self) -> None:
        await self.server.stop()
        os.truncate(append_only_file(self.folder), self.remembered)
        await self.server.start()

    async def charged(self, amount: int) -> None:
        account = await self.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - amount, 0)
        assert (await self.ledger.audit()).mismatches == []


async def test_settlement_that_waited_for_the_reconnect_does_not_hide_what_the_dead_server_forgot(tmp_path):
    async with Forgetful(tmp_path) as worker:
        first, second = await worker.admit("first"), await worker.admit("second")
        await worker.remember()
        assert (await worker.ledger.settle(first, Outcome(7))).status == "settled"
        await worker.die()
        waiting = worker.ledger.settle(second, Outcome(8))
        await worker.come_back()
        assert (await waiting).status == "settled"
        await until(lambda: not worker.journal.unconfirmed)
        await worker.charged(7 + 8)


async def test_worker_that_ends_while_the_store_is_away_leaves_what_was_confirmed_to_its_heir(tmp_path):
    async with Forgetful(tmp_path) as worker:
        hold = await worker.admit("only")
        await worker.remember()
        assert (await worker.ledger.settle(hold, Outcome(7))).status == "settled"
        await worker.die()
        assert worker.journal.unconfirmed == 0
        await worker.recovery.close()
        worker.journal.close()
        worker.store.on_reconnect = None
        await worker.come_back()
        await until(worker.store.whole)
        assert (await worker.accounts.show("acme")).held == 100
        heir = Journal(tmp_path / "journal")
        recovery = Ledger(worker.store, {}, journal=heir).recovery
        assert recovery is not None
        assert await recovery.adopt() == Adopted(settlements=1)
        heir.close()
        await worker.charged(7)


DYING = """
import sys, time
from pathlib import Path
from gateway.ledger import Journal
from gateway.ledger.entry import Entry
journal = Journal(Path(sys.argv[1]))
journal.append([Entry("acme", rid, "key_x", "use", -5, 1, int(sys.argv[2]), "{}") for rid in ("dead-1", "dead-2")])
print("written", flush=True)
time.sleep(60)
"""


async def test_journal_of_a_killed_worker_is_adopted_once(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, _):
        await w.caller(balance=10_000)
        now = str((await w.store.client.time())[0] * 10**6)
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DYING, str(tmp_path), now, stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdout is not None
        assert await asyncio.wait_for(worker.stdout.readline(), 20) == b"written\n"
        assert ledger.recovery is not None
        assert await ledger.recovery.adopt() == Adopted()  # it lives
        worker.kill()
        await worker.wait()
        assert await ledger.recovery.adopt() == Adopted(settlements=2)
        assert (await w.accounts.show("acme")).balance == 10_000 - 10
        assert await ledger.recovery.adopt() == Adopted()
        assert list(tmp_path.glob("*.jsonl")) == []


async def test_entry_without_an_account_is_set_aside_and_not_tried_for_ever(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        hold = await ledger.admit(w.ask(await w.caller()))
        await w.store.client.flushall()
        assert (await ledger.settle(hold, Outcome(5))).status == "refused"
        assert journal.unconfirmed == 0
        assert [e.rid for e in read_entries(tmp_path / "refused.jsonl")] == [hold.rid]


def test_torn_line_is_skipped_and_the_rest_is_read(tmp_path):
    journal = Journal(tmp_path)
    journal.append([entry("one"), entry("two")])
    journal.close()
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    assert [e.rid for e in read_entries(path)] == ["one"]


def test_disk_that_refuses_is_no_reason_to_refuse_service(tmp_path, monkeypatch):
    journal = Journal(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gateway.ledger.journal.os.write", full)
    assert journal.append([entry("one")]) == NOWHERE
    assert journal.unconfirmed == 0
    journal.close()


def test_segments_rotate_by_size(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.ledger.journal.SEGMENT_BYTES", 100)
    journal = Journal(tmp_path)
    segments = {journal.append([entry(f"r{n}")]) for n in range(12)}
    assert len(segments) > 2
    assert journal.unconfirmed == 12
    journal.close()


@pytest.mark.parametrize("closed", [True, False])
def test_orphans_are_those_whose_lock_is_free(tmp_path, closed):
    mine, other = Journal(tmp_path), Journal(tmp_path)
    other.append([entry("one")])
    if closed:
        other.close()
    assert len(mine.orphans()) == closed
    mine.close()
    other.close()

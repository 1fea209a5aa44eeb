"""Nothing that was delivered goes unbilled: the store away, a dead worker, a failover that forgot."""

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.errors import StoreUnavailable
from gateway.ledger import Hold, Journal, Ledger
from gateway.ledger.entry import Entry
from gateway.ledger.journal import NOWHERE, read_entries
from gateway.ledger.recovery import TakenOver
from gateway.store import EmbeddedServer, Store
from gateway.store.greeting import ServerIdentity
from tests.ledger.forgetful import PEPPER, Forgetful, Heir
from tests.ledger.records import quote_of, record_of, settle, stream_of
from tests.ledger_lines import last_line
from tests.polling import until

EVERYONE = frozenset({"default"})


def entry(request_id: str) -> Entry:
    return Entry("acme", request_id, "key_x", "use", -5, 1, 0, "{}")


@contextlib.asynccontextmanager
async def ruled_by(world, folder: Path) -> AsyncIterator[tuple[Ledger, Journal]]:
    journal = Journal(folder)
    ledger = Ledger(world.store, {}, journal=journal)
    try:
        yield ledger, journal
    finally:
        journal.close()


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-12")
@pytest.mark.parametrize("is_confirmed", [True, False])
async def test_name_of_a_journal_says_whether_the_store_had_confirmed_all_of_it(tmp_path, is_confirmed):
    journal = Journal(tmp_path)
    numbers = [journal.append([entry(request_id)]) for request_id in ("first", "second")]
    for number in numbers if is_confirmed else numbers[:1]:
        journal.confirm(number)
    journal.close()
    [path] = tmp_path.glob("*.jsonl")
    assert path.name.endswith(".settled.jsonl") is is_confirmed


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-11")
async def test_confirmed_settlements_are_removed_from_the_journal_after_a_while(world, tmp_path):
    async with world() as w:
        journal = Journal(tmp_path / "own", keep=0.0, segment_seconds=0.0)
        ledger = Ledger(w.store, {}, journal=journal)
        key = await w.caller()
        for _ in range(3):
            hold = await ledger.admit(*w.ask(key))
            await settle(ledger, hold, 5)
        assert journal.unconfirmed == 0
        journal.sweep()
        assert list((tmp_path / "own").glob("*.jsonl")) == []
        journal.close()


@pytest.mark.holds("operations/redis.md#redis-for-production-9")
async def test_no_settlement_is_removed_while_a_server_is_unreachable(world, tmp_path):
    async with world() as w:
        journal = Journal(tmp_path / "own", keep=0.0, segment_seconds=0.0)
        ledger = Ledger(w.store, {}, journal=journal)
        await settle(ledger, await ledger.admit(*w.ask(await w.caller())), 5)
        journal.store_is_whole = lambda: False
        journal.sweep()
        assert len(list((tmp_path / "own").glob("*.jsonl"))) == 1
        journal.store_is_whole = w.store.whole
        journal.sweep()
        assert list((tmp_path / "own").glob("*.jsonl")) == []
        journal.close()


async def test_failover_while_the_journal_is_being_sent_sends_it_again(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        await settle(ledger, await ledger.admit(*w.ask(await w.caller())), 5)
        recovery = ledger.recovery
        assert recovery is not None
        send, sent = recovery._send, []

        async def send_and_fail_over(entries, **options):
            entries = list(entries)
            await send(entries, **options)
            sent.append(len(entries))
            if len(sent) == 1:
                recovery.reconnected(ServerIdentity("b", "y"), ServerIdentity("c", "z"))

        recovery._send = send_and_fail_over  # type: ignore[method-assign, assignment]
        recovery.reconnected(ServerIdentity("a", "x"), ServerIdentity("b", "y"))
        await until(lambda: not journal.unconfirmed)
        assert sent == [1, 1]


@pytest.mark.holds("operations/redis.md#durability-of-commands-9", "operations/redis.md#a-slow-store-4")
async def test_settlement_is_on_disk_before_it_is_in_the_store(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        hold = await ledger.admit(*w.ask(await w.caller()))
        settling = asyncio.ensure_future(settle(ledger, hold, 5))
        await until(lambda: journal.unconfirmed or settling.done())
        (path,) = tmp_path.glob("*.jsonl")
        assert [e.request_id for e in read_entries(path)] == [hold.request_id]
        assert path.stat().st_mode & 0o777 == 0o600
        await settling
        assert journal.unconfirmed == 0


async def test_settlement_without_a_store_is_written_when_the_store_returns(tmp_path):
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
        holds = [await ledger.admit(f"r{n}", key, quote_of(100, tokens=0)) for n in range(20)]
        await server.stop()
        await asyncio.gather(*(settle(ledger, hold, 7) for hold in holds))
        assert journal.unconfirmed == 20
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


@pytest.mark.slow
async def test_retries_without_a_store_leave_no_open_file_and_nothing_to_the_garbage_collector(tmp_path):
    server = EmbeddedServer(tmp_path / "store")
    await server.start()
    store = await Store.open(server.socket)
    journal = Journal(tmp_path / "journal")
    ledger = Ledger(store, {}, journal=journal)
    assert ledger.recovery is not None
    accounts = Accounts(store, ledger)
    await accounts.create("acme", balance=10_000)
    key = await Authenticator(store, PEPPER).authenticate((await Keys(store, PEPPER).create("acme")).text)
    holds = [await ledger.admit(f"r{n}", key, quote_of(100, tokens=0)) for n in range(20)]
    await server.stop()
    await asyncio.gather(*(settle(ledger, hold, 7) for hold in holds))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await ledger.recovery._pass()
        assert not [path for path in map(os.readlink, _descriptors()) if path.endswith(".jsonl")]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [thing for thing in gc.garbage if isinstance(thing, StoreUnavailable | Entry)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    await ledger.recovery.close()
    journal.close()
    await store.close()


def _descriptors() -> list[Path]:
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


@pytest.mark.holds("operations/redis.md#redis-for-production-9")
async def test_settlements_lost_by_a_failover_are_sent_again(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        key = await w.caller(balance=10_000)
        before = await w.store.client.dump("{a:acme}"), await w.store.client.dump("{a:acme}:lg")
        for _ in range(5):
            await settle(ledger, await ledger.admit(*w.ask(key)), 10)
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


async def test_settlement_sent_after_the_reconnect_does_not_hide_settlements_lost_by_the_dead_server(tmp_path):
    async with Forgetful(tmp_path) as worker:
        first, second = await worker.admit("first"), await worker.admit("second")
        await worker.remember()
        await settle(worker.ledger, first, 7)
        assert worker.journal.unconfirmed == 0
        await worker.die()
        worker.ledger.book(second, record_of(8))
        await worker.come_back()
        await worker.ledger.drain()
        await until(lambda: not worker.journal.unconfirmed)
        await worker.assert_charged(7 + 8)


async def test_confirmed_settlements_of_an_ended_worker_are_taken_over(tmp_path):
    async with Forgetful(tmp_path) as worker:
        hold = await worker.admit("only")
        await worker.remember()
        await settle(worker.ledger, hold, 7)
        await worker.die()
        assert worker.journal.unconfirmed == 0
        await worker.end()
        await worker.come_back()
        await until(worker.store.whole)
        assert (await worker.accounts.show("acme")).held == 100
        async with worker.heir() as heir:
            assert await heir.recovery.take_over() == TakenOver(settlements=1)
        await worker.assert_charged(7)


def board_of(worker: Forgetful, hold: Hold, *, units: int) -> None:
    """A stream that has begun, at 1 a token of output."""
    body = stream_of(hold, Price(output=1_000_000), Usage(estimated=True))
    worker.journal.checkpoint.put(hold.request_id, body).delivered(4 * units)


@pytest.mark.holds("operations/redis.md#redis-for-production-10")
async def test_store_that_loses_settlements_taken_over_gets_them_again(tmp_path):
    async with Forgetful(tmp_path) as worker:
        settled, running = await worker.admit("settled"), await worker.admit("running")
        board_of(worker, running, units=8)
        await worker.remember()
        await settle(worker.ledger, settled, 7)
        await worker.end()
        async with worker.heir() as heir:
            assert await heir.recovery.take_over() == TakenOver(settlements=1, calls=1)
            await worker.assert_charged(7 + 8)
            await worker.die()
            await worker.come_back()
            await until(worker.store.whole)
            await until(lambda: heir.sent_again)
            await until(lambda: not heir.journal.unconfirmed)
            await worker.assert_charged(7 + 8)


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-12")
async def test_settlements_taken_over_without_a_store_arrive_when_it_answers(tmp_path):
    async with Forgetful(tmp_path) as worker:
        settled, running, silent = [await worker.admit(request_id) for request_id in ("settled", "running", "silent")]
        board_of(worker, running, units=8)
        await worker.remember()
        await settle(worker.ledger, settled, 7)
        await worker.end()
        async with worker.heir() as heir:
            await worker.die()
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await heir.recovery.take_over()
            (lock,) = heir.journal.folder.glob("*.lock")
            files = set(heir.journal.folder.glob("*.jsonl"))
            assert files == set(heir.journal.folder.glob(f"{lock.stem}.*.jsonl"))
            assert sorted(e.request_id for path in files for e in read_entries(path)) == ["running", "settled"]
            await worker.come_back()
            await until(lambda: heir.sent_again)
            assert await heir.recovery.take_over() == TakenOver(settlements=1, calls=2)
            await worker.assert_charged(7 + 8)
            assert (await last_line(worker.ledger, "acme", silent.request_id)).kind == "reclaim"


STEPS = ["append", "board", "inherit 1", "inherit 2", "lock", "send", "confirmed"]


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-12")
@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_take_over_that_is_killed_at_any_step_is_completed_by_another_process(tmp_path, monkeypatch, step):
    """And the store forgets in the end, so everything has to be in some journal still."""
    async with Forgetful(tmp_path) as worker:
        settled, late, running, both = [
            await worker.admit(request_id) for request_id in ("settled", "late", "running", "both")
        ]
        board_of(worker, running, units=8)
        await worker.remember()
        await settle(worker.ledger, settled, 7)
        worker.journal.rotate()
        await asyncio.gather(settle(worker.ledger, late, 6), settle(worker.ledger, both, 5))
        board_of(worker, both, units=50)  # killed after its settlement was written, before it left the board
        await worker.end()
        async with worker.heir() as heir:
            kill_at(step, heir, monkeypatch)
            with contextlib.suppress(Killed):
                await heir.recovery.take_over()
                assert step == "confirmed"
            monkeypatch.undo()
        async with worker.heir() as heir:
            await heir.recovery.take_over()
            await worker.assert_charged(7 + 6 + 8 + 5)
            await worker.die()
            await worker.come_back()
            await until(lambda: heir.sent_again)
            await until(lambda: not heir.journal.unconfirmed)
            await worker.assert_charged(7 + 6 + 8 + 5)


class Killed(Exception):
    """Nothing of the process runs after this."""


def kill_at(step: str, heir: Heir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the heir die right after that step, or before it for `send`."""
    seen: list[str] = []

    def dies(name, call):
        def step_and_die(*args, **options):
            done = call(*args, **options)
            seen.append(name)
            if step in (name, f"{name} {seen.count(name)}"):
                heir.killed = True
                raise Killed
            return done

        return step_and_die

    def kind(path: Path) -> str:
        return path.suffix[1:]

    unlink = Path.unlink
    deaths = {suffix: dies(suffix, unlink) for suffix in ("board", "lock")}
    monkeypatch.setattr(Path, "unlink", lambda path, **options: deaths.get(kind(path), unlink)(path, **options))
    for name, method in (("append", "append"), ("inherit", "take_over_file")):
        monkeypatch.setattr(heir.journal, method, dies(name, getattr(heir.journal, method)))
    if step == "send":
        monkeypatch.setattr(heir.recovery, "_pass", dies("send", lambda: None))


async def test_running_calls_are_charged_by_a_take_over_with_a_full_disk(tmp_path, monkeypatch):
    async with Forgetful(tmp_path) as worker:
        settled, running = await worker.admit("settled"), await worker.admit("running")
        board_of(worker, running, units=8)
        await settle(worker.ledger, settled, 7)
        await worker.end()

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        async with worker.heir() as heir:
            monkeypatch.setattr("gateway.ledger.journal.os.write", full)
            assert await heir.recovery.take_over() == TakenOver(settlements=1, calls=1)
            monkeypatch.undo()
            await worker.assert_charged(7 + 8)
            assert list(heir.journal.folder.glob("*.board")) == []


async def test_settlements_taken_over_are_removed_like_others(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        hold = await ledger.admit(*w.ask(await w.caller()))
        await settle(ledger, hold, 5)
        journal.close()
        heir = Journal(tmp_path, keep=0.0)
        recovery = Ledger(w.store, {}, journal=heir).recovery
        assert recovery is not None
        assert await recovery.take_over() == TakenOver(settlements=1)
        assert [e.request_id for path in tmp_path.glob("*.jsonl") for e in read_entries(path)] == [hold.request_id]
        heir.sweep()
        assert list(tmp_path.glob("*.jsonl")) == []
        heir.close()


DYING = """
import sys
from pathlib import Path
from gateway.ledger import Journal
from gateway.ledger.entry import Entry
journal = Journal(Path(sys.argv[1]))
journal.append([Entry("acme", rid, "key_x", "use", -5, 1, int(sys.argv[2]), "{}") for rid in ("dead-1", "dead-2")])
print("written", flush=True)
sys.stdin.read()
"""


async def test_journal_of_a_killed_worker_is_taken_over_once(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, _):
        await w.caller(balance=10_000)
        now = str((await w.store.client.time())[0] * 10**6)
        worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            DYING,
            str(tmp_path),
            now,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert worker.stdout is not None
        assert await asyncio.wait_for(worker.stdout.readline(), 60) == b"written\n"
        assert ledger.recovery is not None
        assert await ledger.recovery.take_over() == TakenOver()  # it lives
        worker.kill()
        await worker.wait()
        assert await ledger.recovery.take_over() == TakenOver(settlements=2)
        assert (await w.accounts.show("acme")).balance == 10_000 - 10
        assert await ledger.recovery.take_over() == TakenOver()
        assert len(list(tmp_path.glob("*.lock"))) == 1


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-11")
async def test_entry_without_an_account_is_set_aside_and_not_retried(world, tmp_path):
    async with world() as w, ruled_by(w, tmp_path) as (ledger, journal):
        hold = await ledger.admit(*w.ask(await w.caller()))
        await w.store.client.flushall()
        await settle(ledger, hold, 5)
        assert journal.unconfirmed == 0
        assert [e.request_id for e in read_entries(tmp_path / "refused.jsonl")] == [hold.request_id]


def test_torn_line_is_skipped_and_the_rest_is_read(tmp_path):
    journal = Journal(tmp_path)
    journal.append([entry("one"), entry("two")])
    journal.close()
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    assert [e.request_id for e in read_entries(path)] == ["one"]


def test_disk_error_does_not_stop_the_service(tmp_path, monkeypatch):
    journal = Journal(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gateway.ledger.journal.os.write", full)
    assert journal.append([entry("one")]) == NOWHERE
    assert journal.unconfirmed == 0
    journal.close()


def test_segments_closed_early_repeatedly_are_removed_too(tmp_path):
    journal = Journal(tmp_path, keep=0.0)
    for number in range(20):  # a store that fails every few seconds has each segment closed and sent
        journal.confirm(journal.append([entry(f"r{number}")]))
        journal.rotate()
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    journal.close()


def test_segments_rotate_by_size(tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.ledger.journal.SEGMENT_BYTES", 100)
    journal = Journal(tmp_path)
    segments = {journal.append([entry(f"r{n}")]) for n in range(12)}
    assert len(segments) > 2
    assert journal.unconfirmed == 12
    journal.close()


@pytest.mark.parametrize("closed", [True, False])
def test_orphans_are_journals_with_a_free_lock(tmp_path, closed):
    mine, other = Journal(tmp_path), Journal(tmp_path)
    other.append([entry("one")])
    if closed:
        other.close()
    assert len(mine.orphans()) == closed
    mine.close()
    other.close()

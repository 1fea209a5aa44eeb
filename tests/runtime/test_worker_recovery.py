"""Who inherits what dead workers leave: their calls are charged at once, or once their leases have run out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gateway.runtime.worker_recovery
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.errors import ConcurrencyLimited
from gateway.ledger import GroupLimits, Hold, Journal, Ledger
from gateway.ledger.inflight_checkpoint import Slot, read_inflight_checkpoint
from gateway.runtime.worker_recovery import WorkerRecovery
from gateway.store import Store
from tests.ledger.forgetful import Forgetful
from tests.ledger.records import quote_of, settle, stream_of
from tests.polling import until
from tests.world import OpenWorld


def serve(journal: Journal, hold: Hold) -> Slot:
    """Begin a stream, at 10 a token of output."""
    body = stream_of(hold, Price(output=10_000_000), Usage(estimated=True))
    return journal.checkpoint.put(hold.request_id, body)


async def test_calls_of_dead_workers_are_charged_at_once_and_those_of_running_workers_are_not(
    world: OpenWorld, tmp_path: Path
) -> None:
    async with world(default=GroupLimits(concurrency=2)) as w:
        key = await w.caller(balance=10_000, concurrency=2)
        lost, kept = await w.admit(key, 1000), await w.admit(key, 1000)
        dead, living = Journal(tmp_path), Journal(tmp_path)
        serve(dead, lost).delivered(120)
        serve(living, kept).delivered(40)
        recovery = WorkerRecovery(w.store, tmp_path)
        running = asyncio.create_task(recovery.run())
        try:
            dead.close()
            recovery.look()

            async def charged() -> bool:
                return (await w.accounts.show("acme")).held == 1000

            await until(charged)
            assert (await w.accounts.show("acme")).balance == 9_700
            await w.admit(key, 1)  # its lease on the key's concurrency is free, too
            with pytest.raises(ConcurrencyLimited):
                await w.admit(key, 1)
            await w.proved()
            (checkpoint,) = tmp_path.glob("*.board")
            assert [entry.request_id for entry in read_inflight_checkpoint(checkpoint).entries] == [kept.request_id]
        finally:
            running.cancel()
            await asyncio.wait([running])
            await recovery.close()
            living.close()


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-7")
async def test_calls_of_dead_workers_are_charged_at_their_checkpoint_when_their_leases_expire(
    world: OpenWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lapsed = 0.3
    monkeypatch.setattr(gateway.runtime.worker_recovery, "LAPSED", lapsed)
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 1000)
        hold.used = 300
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        began = time.monotonic()
        recovery = WorkerRecovery(w.store, tmp_path)
        running = asyncio.create_task(recovery.run())
        try:

            async def released() -> bool:
                return (await w.accounts.show("acme")).held == 0

            await until(released)
            assert time.monotonic() - began >= lapsed  # not before its time
            assert (await w.accounts.show("acme")).balance == 9_700
            await w.proved()
        finally:
            running.cancel()
            await asyncio.wait([running])
            await recovery.close()


@contextlib.asynccontextmanager
async def salvaging(worker: Forgetful) -> AsyncIterator[WorkerRecovery]:
    """The heir as the supervisor runs it, on a connection of its own."""
    store = await Store.open(worker.server.socket)
    recovery = WorkerRecovery(store, worker.folder / "journal")
    store.on_reconnect = recovery.reconnected
    running = asyncio.create_task(recovery.run())
    try:
        yield recovery
    finally:
        running.cancel()
        await asyncio.wait([running])
        await recovery.close()
        await store.close()


@pytest.mark.slow
async def test_restarted_workers_lose_nothing_with_a_store_that_loses_its_data_every_time(tmp_path: Path) -> None:
    """A small storm: in each round a worker settles some calls, dies in others, is adopted; then the store dies."""
    async with Forgetful(tmp_path) as worker, salvaging(worker) as recovery:
        truth = 0
        for round_ in range(4):
            journal = Journal(worker.folder / "journal")
            ledger = Ledger(worker.store, {}, journal=journal)
            await worker.remember()
            quote = quote_of(100, tokens=0)
            holds = await asyncio.gather(*(ledger.admit(f"{round_}-{n}", worker.key, quote) for n in range(12)))
            for hold in holds[8:]:
                serve(journal, hold).delivered(4 * 3)
            await asyncio.gather(*(settle(ledger, hold, 7) for hold in holds[:8]))
            truth += 8 * 7 + 4 * 30
            journal.close()
            recovery.look()
            await until(lambda left=truth: taken_over(worker, left))
            await worker.die()
            await worker.come_back()
            await until(lambda left=truth: taken_over(worker, left))
        await worker.assert_charged(truth)


async def taken_over(worker: Forgetful, truth: int) -> bool:
    if not worker.store.whole():
        return False
    account = await worker.accounts.show("acme")
    return (account.balance, account.held) == (10_000 - truth, 0)


async def test_segments_taken_over_are_removed_a_minute_after_their_settlement(
    world: OpenWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.runtime.worker_recovery, "AGAIN", 0.05)
    async with world() as w:
        dead = Journal(tmp_path)
        ledger = Ledger(w.store, {}, journal=dead)
        await settle(ledger, await ledger.admit(*w.ask(await w.caller())), 5)
        dead.close()
        recovery = WorkerRecovery(w.store, tmp_path)
        recovery._journal._keep = 0.3
        running = asyncio.create_task(recovery.run())
        try:
            await until(lambda: not list(tmp_path.glob("*.lock"))[1:])
            assert len(list(tmp_path.glob("*.jsonl"))) == 1
            await until(lambda: not list(tmp_path.glob("*.jsonl")))
        finally:
            running.cancel()
            await asyncio.wait([running])
            await recovery.close()

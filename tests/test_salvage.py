"""Who inherits what dead workers leave: their calls are charged at once, or once their leases have run out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gateway.salvage
from gateway.errors import ConcurrencyLimited
from gateway.ledger import GroupLimits, Hold, Journal
from gateway.ledger.board import read_board
from gateway.ledger.call import LineMeta
from gateway.ledger.tab import Bill, Tab
from gateway.price import Price
from gateway.salvage import Salvage
from gateway.usage import Usage
from tests.polling import until
from tests.world import OpenWorld


def serving(hold: Hold) -> Tab:
    """A stream that has begun, at 10 a token of output."""
    meta = LineMeta(hold.key.id, hold.model, estimated=True)
    bill = Bill(hold.admitted_at, meta, Usage(estimated=True), Price(output=10_000_000), None, 1.0)
    return Tab("acme", hold.rid, hold.key.id, bill)


async def test_calls_of_the_dead_are_charged_at_once_and_those_of_the_living_never(
    world: OpenWorld, tmp_path: Path
) -> None:
    async with world(default=GroupLimits(concurrency=2)) as w:
        key = await w.caller(balance=10_000, concurrency=2)
        lost, kept = await w.admit(key, 1000), await w.admit(key, 1000)
        dead, living = Journal(tmp_path), Journal(tmp_path)
        dead.board.put(serving(lost)).delivered(120)
        living.board.put(serving(kept)).delivered(40)
        salvage = Salvage(w.store, tmp_path)
        running = asyncio.create_task(salvage.run())
        try:
            dead.close()
            salvage.look()

            async def charged() -> bool:
                return (await w.accounts.show("acme")).held == 1000

            await until(charged)
            assert (await w.accounts.show("acme")).balance == 9_700
            await w.admit(key, 1)  # its lease on the key's concurrency is free, too
            with pytest.raises(ConcurrencyLimited):
                await w.admit(key, 1)
            await w.proved()
            (board,) = tmp_path.glob("*.board")
            assert [entry.rid for entry in read_board(board).entries] == [kept.rid]
        finally:
            running.cancel()
            await asyncio.wait([running])
            await salvage.close()
            living.close()


async def test_calls_of_the_dead_are_charged_at_their_checkpoint_when_their_leases_have_run_out(
    world: OpenWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.salvage, "LAPSED", 0.3)
    async with world() as w:
        hold = await w.admit(await w.caller(balance=10_000), 1000)
        hold.used = 300
        await w.ledger.beat([hold])
        await w.expire(hold)
        salvage = Salvage(w.store, tmp_path)
        running = asyncio.create_task(salvage.run())
        try:
            await asyncio.sleep(0.1)
            assert (await w.accounts.show("acme")).held == 1000  # not before its time

            async def released() -> bool:
                return (await w.accounts.show("acme")).held == 0

            await until(released)
            assert (await w.accounts.show("acme")).balance == 9_700
            await w.proved()
        finally:
            running.cancel()
            await asyncio.wait([running])
            await salvage.close()

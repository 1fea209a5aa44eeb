"""Who inherits what dead workers leave: calls that nobody renews are charged once their leases have run out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gateway.salvage
from gateway.salvage import Salvage
from tests.polling import until
from tests.world import OpenWorld


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
            salvage.close()

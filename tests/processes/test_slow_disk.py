"""A store that dies on a slow disk forgets what it confirmed; workers that ended meanwhile must not be missed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.ledger.storms import on_disk
from tests.polling import until
from tests.processes.conftest import Yard
from tests.slow_disk import slow_disk


async def test_call_of_a_restarted_worker_is_kept_if_the_store_loses_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        slow = slow_disk(yard.folder, patch)
        gateway = yard.make()
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    assert (await gateway.chat()).status == 200

    async def syncing() -> bool:
        async with gateway.session() as session:
            await session.store.client.incr("anything")
            return int((await session.store.client.info("persistence"))["aof_pending_bio_fsync"]) > 0

    async with gateway.session() as session:
        await on_disk(session.store)
    slow.touch()
    try:
        await until(syncing)
        assert (await gateway.chat()).status == 200
        (worker,) = gateway.workers
        os.kill(worker, signal.SIGTERM)
        await until(lambda: "journaled settlements of ended workers" in gateway.text)
        os.kill(gateway.store_pid, signal.SIGKILL)
    finally:
        slow.unlink()

    async def charged() -> bool:
        account = await gateway.account()
        return len(await gateway.charges()) == 2 and account.held == 0

    await until(lambda: "the store's server is back" in gateway.text)
    await until(charged)
    await gateway.proved()

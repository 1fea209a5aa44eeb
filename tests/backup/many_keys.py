"""A deployment with an account of many keys, for the tests of backups."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.ledger.gather_all import batches
from gateway.store import Store
from tests.cli.conftest import on_store
from tests.world import World


def make_keys(valkey: Path, account: str, count: int) -> None:
    """Create so many keys of an account that exists."""

    async def work(store: Store) -> None:
        keys = World(store, {}).keys
        for some in batches(range(count), 200):
            await asyncio.gather(*(keys.create(account, name=f"key {number}") for number in some))

    on_store(valkey, work)

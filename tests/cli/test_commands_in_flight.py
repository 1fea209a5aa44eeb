"""Commands on many accounts with many keys send few enough at a time: a link refuses the 10,001st without a reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.store_services import StoreServices
from gateway.backup.newer_state import undone_in_store
from gateway.backup.records import RecordWriter, read_records
from gateway.backup.saved_state import read_saved_state
from gateway.backup.store_dump import StoreDump
from gateway.config.settings import Settings, StoreSettings
from gateway.services.ledger_audit import audit_ledger
from gateway.store import Store
from tests.ledger.script_times import fill
from tests.world import OpenWorld, World

pytestmark = pytest.mark.slow

ACCOUNTS, KEYS = 200, 200
MOST = 5_000  # half of what a link takes
SCRIPTS = 24  # that the store runs one after the other before it serves another client; some are of the client itself
UNREADABLE = ["account-003", "account-101", "account-199"]


def keys() -> Iterator[tuple[Any, ...]]:
    for account in range(ACCOUNTS):
        slot = f"{{a:account-{account:03d}}}"
        ids = [f"key_{account:06d}{n:012d}" for n in range(KEYS)]
        yield "SADD", f"{slot}:ks", *ids
        for id_ in ids:
            yield (
                "HSET", f"{slot}:k:{id_}", "state", "active", "name", "", "last4", "last", "created", 1,
                "spent", 0, "held", 0,
            )  # fmt: skip


class Peak:
    """The largest number of commands that were without a reply at the same time."""

    def __init__(self, store: Store) -> None:
        self._links = store.links
        self.most = 0

    async def watch(self) -> None:
        """Look in each turn of the event loop."""
        while True:
            self.most = max(self.most, *(link.in_flight for link in self._links), 0)
            await asyncio.sleep(0)


@asynccontextmanager
async def watched(store: Store) -> AsyncIterator[Peak]:
    peak = Peak(store)
    task = asyncio.create_task(peak.watch())
    try:
        yield peak
    finally:
        task.cancel()


async def test_audit_of_many_accounts_with_many_keys_reads_all_of_them(world: OpenWorld, tmp_path: Path) -> None:
    async with world() as w:
        await fill_accounts(w)
        for name in UNREADABLE:
            await w.store.client.hset(f"{{a:{name}}}:k:key_{name[-3:]:0>6}{KEYS - 1:012d}", "max", "x")
        services = StoreServices(Settings(store=StoreSettings(data_dir=str(tmp_path))), w.store)
        async with watched(w.store) as peak:
            report = await audit_ledger(services, None, warn=print)
        assert [one.account for one in report.mismatches if one.rule.startswith("fields ")] == UNREADABLE
        assert len(report.mismatches) == len(UNREADABLE)
        assert 1000 < peak.most <= MOST


async def test_backup_and_comparison_of_many_accounts_with_many_keys(world: OpenWorld, tmp_path: Path) -> None:
    async with world() as w:
        await fill_accounts(w)
        writer = RecordWriter(tmp_path / "store")
        async with watched(w.store) as peak:
            counts = await StoreDump(w.store, writer).run()
            writer.close()
            assert (counts.accounts, counts.keys) == (ACCOUNTS, ACCOUNTS * KEYS)
            saved = read_saved_state(read_records(tmp_path / "store"))
            now = await w.store.client.time()
            await undone_in_store(w.store, saved, datetime.fromtimestamp(now[0], UTC))
        assert 1000 < peak.most <= MOST


async def test_few_scripts_of_accounts_are_in_front_of_the_commands_of_others(world: OpenWorld, tmp_path: Path) -> None:
    async with world() as w:
        await asyncio.gather(*(w.accounts.create(f"account-{n:03d}") for n in range(ACCOUNTS)))
        async with watched(w.store) as audit:
            await w.ledger.audit()
        writer = RecordWriter(tmp_path / "store")
        async with watched(w.store) as backup:
            await StoreDump(w.store, writer).run()
        writer.close()
        assert 1 < audit.most <= SCRIPTS
        assert 1 < backup.most <= SCRIPTS


async def fill_accounts(w: World) -> None:
    await asyncio.gather(*(w.accounts.create(f"account-{n:03d}") for n in range(ACCOUNTS)))
    await fill(w.store, keys())

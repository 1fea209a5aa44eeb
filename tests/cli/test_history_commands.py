"""Commands that read or change the history, with the database in the data directory."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.amounts import NANO
from gateway.config.loader import load
from gateway.database.address import DatabaseAddress, address_of
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.metrics import Metrics
from gateway.store import Store
from tests.cli.conftest import Terminal, on_store
from tests.ledger.records import record_of
from tests.world import World


def import_all(terminal: Terminal, valkey: Path, address: DatabaseAddress | None = None) -> None:
    """What an importer does when it starts: it imports every account, and trims."""

    async def work(store: Store) -> None:
        sql = SqlThread()
        where = address or address_of(load(terminal.config))
        service = HistoryService(store, lambda: Database.open(where), sql, Metrics(), keep_lines=timedelta(hours=48))
        while await service.attempt() == 0.0:
            pass
        await service.attempt()
        await service.close()
        sql.close()

    on_store(valkey, work)


@pytest.fixture
def acme(terminal: Terminal, valkey: Path) -> Terminal:
    """An account with ten lines, six of them older than two days."""

    async def work(store: Store) -> None:
        world = World(store, {})
        key = await world.caller("acme", balance=10 * NANO)
        for cost in range(1, 10):
            world.ledger.book(await world.admit(key), record_of(cost, provider="p"))
        await world.ledger.drain()
        client: Any = store.client
        entries = await client.xrange("{a:acme}:lg")
        await client.delete("{a:acme}:lg")
        for place, (id_, fields) in enumerate(entries):
            ms, _, step = id_.decode().partition("-")
            back = 49 * 3_600_000 if place < 6 else 0
            await client.xadd("{a:acme}:lg", fields, id=f"{int(ms) - back}-{step}")

    on_store(valkey, work)
    return terminal


def in_store(valkey: Path) -> int:
    found: list[int] = []

    async def work(store: Store) -> None:
        found.append(await store.client.xlen("{a:acme}:lg"))

    on_store(valkey, work)
    return found[0]


def test_usage_shows_lines_that_left_the_store(acme: Terminal, valkey: Path) -> None:
    before = acme.json("usage", "acme")
    import_all(acme, valkey)
    assert in_store(valkey) == 4
    assert acme.json("usage", "acme") == before
    assert acme.json("usage", "acme", "--since", "3d") == before
    assert acme.json("usage", "acme", "--since", "1d") == before[6:]


def test_usage_shows_the_sum_of_lines_that_the_database_does_not_have(acme: Terminal, valkey: Path) -> None:
    import_all(acme, valkey)
    path = address_of(load(acme.config)).file
    assert path is not None
    path.rename(path.with_suffix(".gone"))
    carried, *kept = acme.json("usage", "acme")
    assert (carried["kind"], len(kept)) == ("carry", 4)


def test_audit_proves_both_and_names_a_changed_line(acme: Terminal, valkey: Path) -> None:
    import_all(acme, valkey)
    report = acme.json("audit")
    assert (report["lines"], report["history_lines"], report["mismatches"]) == (4, 10, [])
    database = Database.open(address_of(load(acme.config)))
    with database.writing() as connection:
        connection.execute(sa.update(ledger_lines).where(ledger_lines.c.seq == 2).values(meta="{}"))
    database.close()
    result = acme.run("audit")
    assert result.exit_code == 1
    assert "history hash 2" in result.stdout


def test_audit_fails_with_another_database(acme: Terminal, valkey: Path, tmp_path: Path) -> None:
    import_all(acme, valkey, DatabaseAddress(file=tmp_path / "other.db"))
    Database.open(address_of(load(acme.config))).close()
    result = acme.run("audit")
    assert result.exit_code == 1
    assert "The store's history is in another database" in result.stderr

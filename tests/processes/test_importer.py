"""The importer as a process of the gateway: it copies what calls book, and its death loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.polling import PATIENCE, until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, is_alive

MANY = 4000  # lines: more than an importer copies before it is killed
KILLS = 3
LINES = "SELECT seq, amount FROM ledger_lines WHERE account = 'test' ORDER BY seq"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty PostgreSQL database, or nothing: then it is SQLite in the data directory."""
    if request.param == "sqlite":
        return ""
    return str(request.getfixturevalue("postgres_database")())


def rows(gateway: Served, query: str = LINES, *, url: str = "") -> list[Any]:
    """What a query finds in the gateway's database; nothing while it has no tables."""
    try:
        if url:
            with psycopg.connect(url) as server:
                return server.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(f"file:{gateway.data_dir}/gateway.db?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()
    except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
        return []


async def ledger(gateway: Served) -> list[tuple[int, int]]:
    """Number and amount of each line in the store."""
    async with gateway.session() as session:
        return [(line.n, line.amount) async for line in session.ledger.lines("test")]


async def imported(gateway: Served, *, url: str = "", within: float = PATIENCE) -> None:
    """Wait until the database has what the store has: other tests use the processor first."""
    expected = await ledger(gateway)
    await until(lambda: rows(gateway, url=url) == expected, within=within)


@pytest.mark.holds("operations/history.md#history-2")
async def test_booked_calls_reach_the_database_and_the_metrics(yard: Yard, url: str) -> None:
    gateway = await yard.serve(f'{MODELS}\n[database]\nurl = "{url}"\n')
    for _ in range(3):
        assert (await gateway.chat()).status == 200
    await imported(gateway, url=url)
    found = rows(gateway, "SELECT CAST(sum(calls) AS INTEGER), count(DISTINCT model) FROM usage_daily", url=url)
    assert found == [(3, 1)]

    async def counted() -> bool:
        metrics = await gateway.metrics()
        copied, lag = (metrics.get(f"gateway_importer_{name}") for name in ("lines_total", "lag_seconds"))
        return (copied, lag) == (4, 0)

    await until(counted)


async def test_address_of_a_call_reaches_the_database_shortened(yard: Yard, url: str) -> None:
    gateway = await yard.serve(f'{MODELS}\n[database]\nurl = "{url}"\n')
    assert (await gateway.chat()).status == 200
    query = "SELECT address FROM key_addresses"
    await until(lambda: rows(gateway, query, url=url) == [("127.0.0.0/24",)])
    await imported(gateway, url=url)
    [key] = await gateway.command("keys", "list")
    [used] = await gateway.command("keys", "addresses", key["id"])
    assert used["address"] == "127.0.0.0/24"
    [call] = await gateway.charges()
    assert (await gateway.command("usage", "show", call.request_id))["address"] == "127.0.0.0/24"


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-5", "operations/history.md#history-1")
async def test_killed_importer_is_started_again_and_imports_every_line_once(yard: Yard, url: str) -> None:
    gateway = await yard.serve(f'{MODELS}\n[database]\nurl = "{url}"\n')
    async with gateway.session() as session:
        for start in range(0, MANY, 500):
            credits = (session.ledger.credit("test", 1, operation=f"op_{start + n}") for n in range(500))
            await asyncio.gather(*credits)

    def count() -> int:
        return sum(number for (number,) in rows(gateway, "SELECT count(*) FROM ledger_lines", url=url))

    killed = set[int]()
    while len(killed) < KILLS:
        pid = await until(lambda: gateway.importer not in killed and gateway.importer)
        before = count()
        await until(lambda before=before: count() > min(before, MANY))
        os.kill(pid, signal.SIGKILL)
        killed.add(pid)
        await until(lambda pid=pid: not is_alive(pid))
        assert (await gateway.chat()).status == 200
    await imported(gateway, url=url)
    expected = await ledger(gateway)
    query = "SELECT total, last_seq FROM import_state WHERE account = 'test'"
    assert rows(gateway, query, url=url) == [(sum(amount for _, amount in expected), len(expected))]
    assert (await gateway.metrics())["gateway_importer_restarts_total"] == KILLS
    assert rows(gateway, "SELECT CAST(sum(calls) AS INTEGER) FROM usage_hourly", url=url) == [(KILLS,)]


@pytest.mark.holds("operations/history.md#history-4")
async def test_gateway_serves_while_its_database_cannot_be_used(yard: Yard) -> None:
    gateway = yard.make(MODELS + '\n[database]\nurl = "postgresql://127.0.0.1:1/none?user=me&password=secret"\n')
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    assert (await gateway.chat()).status == 200
    await until(lambda: "the importer waits" in gateway.text)
    assert "secret" not in gateway.text

    async def lagging() -> bool:
        return (await gateway.metrics()).get("gateway_importer_lag_seconds", 0) > 0

    await until(lagging)


async def test_expired_sign_ups_are_removed_by_the_first_sweep(yard: Yard) -> None:
    gateway = await yard.serve(MODELS)
    await until(lambda: rows(gateway, "SELECT email FROM sign_ups") == [] != rows(gateway, "SELECT * FROM meta"))
    row = "INSERT INTO sign_ups VALUES (?, ?, 0, ?, '')"
    with closing(sqlite3.connect(gateway.data_dir / "gateway.db", timeout=10.0)) as connection, connection:
        connection.execute(row, (b"old", "ann@example.com", 1))
        connection.execute(row, (b"new", "bob@example.com", 2**60))
    os.kill(await until(lambda: gateway.importer), signal.SIGKILL)
    await until(lambda: rows(gateway, "SELECT email FROM sign_ups") == [("bob@example.com",)])

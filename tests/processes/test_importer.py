"""The importer as a process of the gateway: it copies what calls book, and its death loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing, nullcontext
from typing import Any

import psycopg
import pytest

from tests.polling import PATIENCE, until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, is_alive

MANY = 2000  # lines: more than an importer copies before it is killed
KILLS = 3
LINES = "SELECT seq, amount FROM ledger_lines WHERE account = 'test' ORDER BY seq"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty PostgreSQL database, or nothing: then it is SQLite in the data directory."""
    if request.param == "sqlite":
        return ""
    return str(request.getfixturevalue("postgres_database")())


def rows(
    gateway: Served, query: str = LINES, *, url: str = "", server: psycopg.Connection[Any] | None = None
) -> list[Any]:
    """What a query finds in the gateway's database; nothing while it has no tables. `server`: a connection to it."""
    try:
        if server is not None:
            return server.execute(query.encode()).fetchall()
        if url:
            with psycopg.connect(url) as once:
                return once.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(f"file:{gateway.data_dir}/gateway.db?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()
    except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
        return []


async def ledger(gateway: Served) -> list[tuple[int, int]]:
    """Number and amount of each line in the store."""
    async with gateway.session() as session:
        return [(line.n, line.amount) async for line in session.ledger.lines("test")]


async def imported(gateway: Served, *, url: str = "", within: float = PATIENCE) -> None:
    """Wait until all calls are settled and the database has what the store has."""
    last = "SELECT last_seq FROM import_state WHERE account = 'test'"

    async def is_done() -> bool:
        if (await gateway.account()).held:
            return False
        expected = await ledger(gateway)
        return rows(gateway, last, url=url) == [(len(expected),)] and rows(gateway, url=url) == expected

    await until(is_done, within=within)


@pytest.mark.holds("operations/history.md#history-2")
async def test_booked_calls_and_their_shortened_address_reach_the_database_and_the_metrics(
    yard: Yard, url: str
) -> None:
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
    query = "SELECT address FROM key_addresses"

    async def noted() -> bool:
        return rows(gateway, query, url=url) == [("127.0.0.0/24",)]

    await until(noted)
    [key] = await gateway.command("keys", "list")
    [used] = await gateway.command("keys", "addresses", key["id"])
    assert used["address"] == "127.0.0.0/24"
    call = (await gateway.charges())[0]
    assert (await gateway.command("usage", "show", call.request_id))["address"] == "127.0.0.0/24"


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-5", "operations/history.md#history-1")
async def test_killed_importer_is_started_again_and_imports_every_line_once(yard: Yard, url: str) -> None:
    gateway = await yard.serve(f'{MODELS}\n[database]\nurl = "{url}"\n')
    async with gateway.session() as session:
        for start in range(0, MANY, 500):
            credits = (session.ledger.credit("test", 1, operation=f"op_{start + n}") for n in range(500))
            await asyncio.gather(*credits)

    killed = set[int]()
    with psycopg.connect(url, autocommit=True) if url else nullcontext() as server:

        def count() -> int:
            return sum(number for (number,) in rows(gateway, "SELECT count(*) FROM ledger_lines", server=server))

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


async def test_event_of_a_command_reaches_the_database_and_the_first_sweep_removes_expired_sign_ups(yard: Yard) -> None:
    gateway = await yard.serve(MODELS)
    async with gateway.session() as session:
        await session.account_admin.disable(session.actor, "test")
        query = "SELECT action, object, after FROM audit_events WHERE action = 'accounts.disable'"

        async def is_there() -> bool:
            return rows(gateway, query) != []

        await until(is_there)
        assert rows(gateway, query) == [("accounts.disable", "account:test", '{"state":"disabled"}')]

        async def is_empty() -> bool:
            return await session.outbox.read() == []

        await until(is_empty)
    assert rows(gateway, "SELECT email FROM sign_ups") == []
    row = "INSERT INTO sign_ups VALUES (?, ?, 0, ?, '')"
    with closing(sqlite3.connect(gateway.data_dir / "gateway.db", timeout=10.0)) as connection, connection:
        connection.execute(row, (b"old", "ann@example.com", 1))
        connection.execute(row, (b"new", "bob@example.com", 2**60))
    os.kill(await until(lambda: gateway.importer), signal.SIGKILL)

    async def is_swept() -> bool:
        return rows(gateway, "SELECT email FROM sign_ups") == [("bob@example.com",)]

    await until(is_swept)

"""What the importer costs: lines per second and CPU per line, while it catches up and at a steady rate.

    python -m benchmarks.micro_history                            # SQLite in a temporary folder, 500 accounts
    python -m benchmarks.micro_history --accounts 1 --rate 7000   # as a saturated worker with one account
    python -m benchmarks.micro_history --postgres URL             # an empty PostgreSQL database

The CPU is that of the importer's process, with SQLAlchemy and the driver; PostgreSQL's own comes on top of it. Starts
an embedded store in a temporary folder. Runs about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from gateway.billing.usage import Usage
from gateway.database.address import DatabaseAddress, postgres_address
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.ids import request_id
from gateway.ledger.import_hints import TOUCHED
from gateway.ledger.line_meta import LineMeta
from gateway.ledger.listing.names import ACCOUNTS
from gateway.metrics import Metrics
from gateway.runtime.interpreter import collect_rarely
from gateway.store import EmbeddedServer, Store
from gateway.store.links import slot

CATCH_UP = 100_000  # lines
SECONDS = 20  # at the steady rate
MODELS = [f"model-{number}" for number in range(8)]


WriterState = tuple[dict[str, int], dict[str, int], int]  # lines and balance by account, and the number of calls


class Writer:
    """Writes ledger lines as settle.lua does, without the script: the store is not what is measured."""

    def __init__(self, store: Store, state: WriterState) -> None:
        self._store = store
        self._lines, self._balances, self._next = state
        self._names = list(self._lines)

    @property
    def state(self) -> WriterState:
        """What a writer in another process needs to continue."""
        return self._lines, self._balances, self._next

    async def write(self, lines: int) -> None:
        """So many lines, spread over the accounts, and their hints."""
        pipe = self._store.client.pipeline(transaction=False)
        touched = set()
        for _ in range(lines):
            self._next += 1
            account = self._names[self._next % len(self._names)]
            self._put(pipe, account)
            touched.add(account)
        for account in touched:
            pipe.hset(slot(account), mapping={"seq": self._lines[account], "bal": self._balances[account]})
        pipe.sadd(ACCOUNTS, *touched)
        pipe.sadd(TOUCHED, *touched)
        await pipe.execute()

    def _put(self, pipe: Any, account: str) -> None:
        n = self._lines[account] = self._lines[account] + 1
        first = n == 1
        amount = 10**15 if first else -1234
        self._balances[account] += amount
        fields = {
            "n": n,
            "rid": request_id(),
            "kind": "open" if first else "use",
            "amount": amount,
            "bal": self._balances[account],
            "meta": b"{}" if first else meta_of(account, self._next),
        }
        pipe.xadd(f"{slot(account)}:lg", fields)


def meta_of(account: str, number: int) -> bytes:
    """The meta of a usual call."""
    return msgspec.json.encode(
        LineMeta(
            f"key_{account}",
            MODELS[number % len(MODELS)],
            "openai",
            "gpt-5-mini-2026",
            Usage(in_text=812, in_cached=100, out_text=204, out_reasoning=30),
            attempts=1,
            outcome="ok",
            price="0123456789abcdef",
            hold=100_000,
            endpoint="chat",
            duration_ms=800 + number % 5000,
            first_token_ms=200 + number % 900,
        )
    )


async def measure(store: Store, path: str, database: Database, *, accounts: int, rate: int) -> None:
    """Catch up, then keep up."""
    collect_rarely()  # as the importer's process does
    names = [f"account-{number}" for number in range(accounts)]
    sql, writer = SqlThread(), Writer(store, (dict.fromkeys(names, 0), dict.fromkeys(names, 0), 0))
    service = HistoryService(
        store,
        lambda: database,
        sql,
        Metrics(),
        keep_lines=timedelta(days=2),
        keep_history=timedelta(days=2555),
        keep_addresses=timedelta(days=30),
    )
    for _ in range(CATCH_UP // 5000):
        await writer.write(5000)
    started, cpu = time.perf_counter(), time.process_time()
    while await service.attempt() == 0.0:
        pass
    seconds, spent = time.perf_counter() - started, time.process_time() - cpu
    check(database, CATCH_UP)
    print(f"catching up: {CATCH_UP / seconds:,.0f} lines/s, {spent / CATCH_UP * 1e6:.0f} µs of CPU per line")
    await keep_up(service, path, writer, rate)
    check(database, CATCH_UP + rate * SECONDS)
    sql.close()


async def keep_up(service: HistoryService, path: str, writer: Writer, rate: int) -> None:
    """Run the service as its process does, while another process writes at the steady rate."""
    writing = multiprocessing.get_context("spawn").Process(target=write_steadily, args=(path, writer.state, rate))
    done, behind = asyncio.Event(), 0.0
    running = asyncio.create_task(service.run(done))
    cpu = time.process_time()
    writing.start()
    while writing.is_alive():
        await asyncio.sleep(0.1)
        if service._behind_since is not None:
            behind = max(behind, time.monotonic() - service._behind_since)
    done.set()
    await running
    while await service.attempt() == 0.0:
        pass
    spent = time.process_time() - cpu
    print(
        f"{rate:,} lines/s on {len(writer.state[0])} accounts: {spent / SECONDS * 100:.0f} % of a core,"
        f" {spent / (rate * SECONDS) * 1e6:.0f} µs of CPU per line, at most {behind:.2f} s behind"
    )


def write_steadily(path: str, state: WriterState, rate: int) -> None:
    """The writing process."""

    async def write() -> None:
        store = await Store.open(Path(path), timeout=5.0)
        writer = Writer(store, state)
        for _ in range(SECONDS * 5):
            due = time.perf_counter() + 0.2
            await writer.write(rate // 5)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await store.close()

    asyncio.run(write())


def check(database: Database, lines: int) -> None:
    """Every line is there once."""
    with database.reading() as connection:
        found = connection.scalar(sa.select(sa.func.count()).select_from(ledger_lines))
    assert found == lines, (found, lines)


async def main(postgres: str, *, accounts: int, rate: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = postgres_address(postgres) if postgres else DatabaseAddress(file=Path(folder) / "gateway.db")
        database = Database.open(address)
        server = EmbeddedServer(folder)
        await server.start()
        try:
            store = await Store.open(server.socket, timeout=5.0)
            await measure(store, str(server.socket), database, accounts=accounts, rate=rate)
            await store.close()
        finally:
            await server.stop()
        database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--postgres", default="", metavar="URL")
    parser.add_argument("--accounts", default=500, type=int)
    parser.add_argument("--rate", default=2000, type=int, metavar="LINES", help="per second")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.postgres, accounts=arguments.accounts, rate=arguments.rate))

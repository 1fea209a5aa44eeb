"""What a ledger line costs in a database: bytes, with its indexes and sums, and the importer's CPU."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from benchmarks.fault import BenchFault
from benchmarks.usual_call import BALANCE, PEPPER, QUOTE, record_of
from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.database.address import DatabaseAddress, postgres_address
from gateway.database.engine import Database
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.ledger import Ledger
from gateway.ledger.api_key import ApiKey
from gateway.ledger.import_hints import TOUCHED
from gateway.metrics import Metrics
from gateway.store import EmbeddedServer, Store

ACCOUNTS = 20
LINES = 20_000
AT_ONCE = 200  # calls


class ImportedLine(NamedTuple):
    """The average of many lines."""

    size: int  # bytes
    cpu: float  # µs of the importer, while it catches up


def database_line(url: str = "") -> ImportedLine:
    """Of the PostgreSQL database at `url`, which must be empty; of an SQLite file without one."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        address = postgres_address(url) if url else DatabaseAddress(file=Path(name) / "gateway.db")
        return asyncio.run(_imported(Path(name), address))


async def _imported(folder: Path, address: DatabaseAddress) -> ImportedLine:
    server, sql = EmbeddedServer(folder), SqlThread()
    await server.start()
    try:
        store = await Store.open(server.socket, timeout=30.0)
        database = Database.open(address)
        try:
            before = _size(database)
            await _fill(store)
            service = HistoryService(
                store,
                lambda: database,
                sql,
                Metrics(),
                keep_lines=timedelta(days=2),
                keep_history=timedelta(days=2555),
                keep_addresses=timedelta(days=30),
            )
            began = time.process_time()
            while await service.attempt() == 0.0:
                pass
            cpu = time.process_time() - began
            if (lines := _lines(database)) != LINES + ACCOUNTS:  # each account has a line that opened it
                raise BenchFault(f"the importer has copied {lines:,} lines")
            return ImportedLine(round((_size(database) - before) / lines), round(cpu / lines * 1e6, 1))
        finally:
            database.close()
            await store.close()
    finally:
        sql.close()
        await server.stop()


async def _fill(store: Store) -> None:
    """Settled calls of each account, by the ledger's own scripts."""
    ledger = Ledger(store, {})
    accounts, keys, auth = Accounts(store, ledger), Keys(store, PEPPER), Authenticator(store, PEPPER)
    for number in range(ACCOUNTS):
        name = f"account-{number}"
        await accounts.create(name, balance=BALANCE)
        key = await auth.authenticate((await keys.create(name)).text)
        for _ in range(LINES // ACCOUNTS // AT_ONCE):
            await asyncio.gather(*(_call(ledger, key) for _ in range(AT_ONCE)))
        await store.client.sadd(TOUCHED, name)
    await ledger.drain()


async def _call(ledger: Ledger, key: ApiKey) -> None:
    request_id = "req_" + secrets.token_hex(16)
    ledger.book(await ledger.admit(request_id, key, QUOTE), record_of(key, request_id, 1.5))


def _lines(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.scalar(sa.text("select count(*) from ledger_lines")) or 0)


def _size(database: Database) -> int:
    is_file = database.address.file is not None
    query = (
        "select page_count * page_size from pragma_page_count(), pragma_page_size()"
        if is_file
        else "select pg_database_size(current_database())"
    )
    with database.reading() as connection:
        return int(connection.scalar(sa.text(query)) or 0)

"""The database held against the store's ledger and against the upstream's log, call by call.

`prove` reads every line of the database by SQL, without the gateway's own code for it, and returns what is wrong as
texts. A call is found by its tag `call`, which every line of a charge has, also where the caller heard of no answer.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg
from msgspec import Struct

from gateway.cli.store_session import StoreSession
from gateway.ledger import LedgerLine
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint, read_archive_checkpoint
from gateway.ledger.line import read_lines
from tests.chaos.traffic import PER_TOKEN, Call
from tests.chaos.truth import SPENT

LINES = """SELECT account, seq, stream_id, request_id, kind, CAST(amount AS TEXT), CAST(balance AS TEXT), meta, hash
    FROM ledger_lines ORDER BY account, seq"""
SUPERSEDED = """SELECT account, seq, stream_id, request_id, kind, CAST(amount AS TEXT), '0', meta, hash
    FROM superseded_lines ORDER BY id"""
SUMS = "SELECT CAST(COALESCE(SUM(calls), 0) AS TEXT), CAST(COALESCE(SUM(cost), 0) AS TEXT) FROM {}"
ROLLUPS = ("usage_hourly", "usage_daily", "usage_monthly", "usage_daily_tags", "usage_site_hourly", "usage_site_daily")
UNREAD = 3  # chunks of a cut stream that the upstream wrote and nobody read; see chaos_workers.py


class Line(NamedTuple):
    """A line of the database."""

    account: str
    seq: int
    stream_id: str
    request_id: str
    kind: str
    amount: int
    balance: int
    meta: str
    hash: str

    @property
    def call(self) -> str:
        """The name of the call; empty for a line of no call."""
        meta = msgspec.json.decode(self.meta) if self.meta else {}
        return str((meta.get("tags") or {}).get("call", ""))


class Sql:
    """A database as its files or its server show it; `file` is that of SQLite."""

    def __init__(self, *, url: str = "", file: Path | None = None) -> None:
        self._url = url
        self._file = file

    def rows(self, query: str) -> list[Any]:
        """What a query finds; nothing while there are no tables, or no server."""
        try:
            if self._file is None:
                with psycopg.connect(self._url) as server:
                    return server.execute(query.encode()).fetchall()
            with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as connection:
                return connection.execute(query).fetchall()
        except (sqlite3.OperationalError, psycopg.OperationalError, psycopg.errors.UndefinedTable):
            return []

    def lines(self, query: str = LINES) -> list[Line]:
        """The lines that a query with their columns finds."""
        found = []
        for account, seq, id_, request_id, kind, amount, balance, meta, hash_ in self.rows(query):
            digest = bytes(hash_).hex()
            found.append(Line(account, seq, id_, request_id, kind, int(amount), int(balance), meta, digest))
        return found

    def ends(self) -> dict[str, tuple[int, int]]:
        """By account, the last number and the balance there."""
        query = "SELECT account, last_seq, CAST(balance AS TEXT) FROM import_state"
        return {account: (seq, int(balance)) for account, seq, balance in self.rows(query)}


class Proof(Struct):
    """What was found."""

    lines: int = 0
    in_store: int = 0  # of these lines, how many have not left the store
    superseded: int = 0
    charged: int = 0  # chunks
    faults: list[str] = []


async def prove(
    session: StoreSession,
    sql: Sql,
    accounts: Iterable[str],
    calls: Iterable[Call],
    written: Mapping[str, int],
    lost: Mapping[str, int],
) -> Proof:
    """Hold all of it against each other. `lost`: by call, chunks that a store without its journals has lost."""
    lines, proof = sql.lines(), Proof()
    proof.lines, proof.superseded = len(lines), len(sql.lines(SUPERSEDED))
    by_account: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_account[line.account].append(line)
    for account in accounts:
        await compare_store(session, account, by_account[account], proof)
    compare_sums(sql, lines, proof)
    _compare_calls(lines, calls, written, lost, proof)
    return proof


async def compare_store(session: StoreSession, account: str, lines: list[Line], proof: Proof) -> None:
    """Numbers without a gap, running balances, and the same lines and balance in the store."""
    balance = 0
    for number, line in enumerate(lines, start=1):
        balance += line.amount
        if (line.seq, line.balance) != (number, balance):
            proof.faults.append(f"{account}: line {line.seq} with {line.balance} instead of {number} with {balance}")
            return
    shown = await session.accounts.show(account)
    if shown.balance != balance or shown.held:
        proof.faults.append(f"{account}: SQL sums to {balance}, the store has {shown.balance} and holds {shown.held}")
    checkpoint, stored = await _read_store(session, account)
    if checkpoint.n + len(stored) != len(lines):
        proof.faults.append(f"{account}: {len(lines)} lines in SQL, {checkpoint.n} + {len(stored)} in the store")
    proof.in_store += len(stored)
    head = checkpoint.hash
    for own in stored:
        head = own.chained(head)
        same = lines[own.n - 1] if own.n <= len(lines) else None
        if same is None or (same.stream_id, same.amount, same.hash) != (own.id, own.amount, head):
            proof.faults.append(f"{account}: line {own.n} of the store is not that of SQL")
            return


async def _read_store(session: StoreSession, account: str) -> tuple[ArchiveCheckpoint, list[LedgerLine]]:
    """The checkpoint and the lines after it, both of one moment: lines may be trimmed meanwhile."""
    checkpoint = await read_archive_checkpoint(session.store, account)
    while True:
        stored = [line async for line in read_lines(session.store, account)]
        after = await read_archive_checkpoint(session.store, account)
        if after.n == checkpoint.n:
            return checkpoint, stored
        checkpoint = after


def compare_sums(sql: Sql, lines: list[Line], proof: Proof) -> None:
    """Every rollup has the calls and the cost of the lines."""
    spent = [line for line in lines if line.kind in SPENT]
    expected = (sum(line.kind != "adj" for line in spent), -sum(line.amount for line in spent))
    tagged = [line for line in spent if line.call]
    for table in ROLLUPS:
        of = tagged if table == "usage_daily_tags" else spent
        wanted = expected if of is spent else (sum(x.kind != "adj" for x in of), -sum(x.amount for x in of))
        found = tuple(int(value) for row in sql.rows(SUMS.format(table)) for value in row)
        if found != wanted:
            proof.faults.append(f"{table}: calls and cost {found} instead of {wanted}")


def _compare_calls(
    lines: list[Line], calls: Iterable[Call], written: Mapping[str, int], lost: Mapping[str, int], proof: Proof
) -> None:
    """Each call is charged once, and what the upstream wrote for it."""
    charges: dict[str, int] = defaultdict(int)
    for line in lines:
        if line.kind in SPENT:
            if line.amount and not line.call:
                proof.faults.append(f"line {line.seq} of {line.account} charges {line.amount} for no call")
            charges[line.call] -= line.amount
    uses = Counter(line.request_id for line in lines if line.kind in ("use", "reclaim"))
    proof.faults += [f"{request_id} is charged {count} times" for request_id, count in uses.items() if count > 1]
    ids = Counter((line.account, line.stream_id) for line in lines)
    proof.faults += [f"{line} is there {count} times" for line, count in ids.items() if count > 1]
    proof.charged = sum(charges.values()) // PER_TOKEN
    named = set()
    for call in calls:
        named.add(call.name)
        most, least = (0, 0) if call.answered_well else (1, -UNREAD if call.stream else -written.get(call.name, 0))
        off = charges.get(call.name, 0) / PER_TOKEN - written.get(call.name, 0)
        if not least <= off + lost.get(call.name, 0) <= most:
            proof.faults.append(f"{call} is charged {off:+} chunks of {written.get(call.name, 0)}")
    proof.faults += [f"{name} is nobody's call" for name in charges.keys() - named - {""}]

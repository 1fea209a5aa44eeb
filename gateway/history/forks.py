"""A fork: the store lost the end of an account's ledger after it was imported, for example in a failover.

The last line that both have is found, and the database's later lines move to `superseded_lines` and out of the sums, in
one transaction. The store's own lines are then imported as usual. Both ledgers only grow, so they are equal up to one
line and differ after it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines, superseded_lines
from gateway.history.import_state import ImportState, chain, write_states
from gateway.history.line_row import LINE_COLUMNS, facts_of, line_of
from gateway.history.new_lines import Blocked
from gateway.history.rollups import Rollup
from gateway.history.sql_thread import SqlThread
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.line import LedgerLine, read_lines
from gateway.store.links import Links

PAGE = 500  # lines compared at once

_COLUMNS = [ledger_lines.c[name] for name in LINE_COLUMNS]


class Imported(Struct, frozen=True):
    """A line in the database; `before` is the hash chain before it."""

    line: LedgerLine
    before: bytes

    @property
    def hash(self) -> bytes:
        """The hash chain up to the line."""
        return bytes.fromhex(self.line.hash)


async def resolve_fork(links: Links, database: Database, sql: SqlThread, state: ImportState) -> int:
    """Move what the store does not have; returns the number of moved lines.

    Blocked if the two have no line in common. ImportConflict if another process has changed the state meanwhile.
    """
    common = await _last_common(links, database, sql, state)
    return await sql.run(_supersede, database, state, common)


async def _last_common(links: Links, database: Database, sql: SqlThread, state: ImportState) -> int:
    """The number of the last line that both have."""
    checkpoint = await read_archive_checkpoint(links, state.account)
    end = state.last_seq
    while end > state.opening_seq:
        imported = await sql.run(_read_page, database, state, end)
        if not imported:
            break
        first, last = imported[-1].line, imported[0].line
        stored = {line.id: line async for line in read_lines(links, state.account, since=first.id, until=last.id)}
        for one in imported:
            if one.line.n == checkpoint.n and one.line.hash == checkpoint.hash:
                return one.line.n
            same = stored.get(one.line.id)
            if same is not None and same.n == one.line.n and chain(one.before, same) == one.hash:
                return one.line.n
        end = first.n - 1
    if checkpoint.n == state.opening_seq and checkpoint.hash == state.opening_hash.hex():
        return state.opening_seq
    raise Blocked("the store and the database have no line in common; see `gateway audit`")


def _read_page(database: Database, state: ImportState, end: int) -> list[Imported]:
    """The lines up to number `end`, the last one first."""
    columns = ledger_lines.c
    query = sa.select(*_COLUMNS).where(columns.account == state.account, columns.seq <= end)
    with database.reading() as connection:
        rows = connection.execute(query.order_by(columns.seq.desc()).limit(PAGE + 1)).all()
    hashes = [row.hash for row in rows[1:]]
    if len(rows) <= PAGE:
        hashes.append(state.opening_hash)
    return [Imported(line_of(row), before) for row, before in zip(rows[:PAGE], hashes, strict=True)]


def _supersede(database: Database, state: ImportState, common: int) -> int:
    now, moved, rollup = time.time_ns() // 1000, 0, Rollup()
    columns = ledger_lines.c
    later = (columns.account == state.account, columns.seq > common)
    with database.writing() as connection:
        for rows in _pages(connection, later):
            connection.execute(superseded_lines.insert(), [{**row._mapping, "superseded_at": now} for row in rows])
            for row in rows:
                line = line_of(row)
                rollup.add(line, facts_of(line.meta_text))
            moved += len(rows)
        rollup.write(connection, sign=-1)
        connection.execute(ledger_lines.delete().where(*later))
        write_states(connection, [(state, _state_at(connection, state, common))])
    return moved


def _pages(connection: Connection, later: tuple[sa.ColumnElement[bool], ...]) -> Iterator[Any]:
    after = -1
    while True:
        query = sa.select(*_COLUMNS).where(*later, ledger_lines.c.seq > after)
        rows = connection.execute(query.order_by(ledger_lines.c.seq).limit(PAGE)).all()
        if rows:
            yield rows
        if len(rows) < PAGE:
            return
        after = rows[-1].seq


def _state_at(connection: Connection, state: ImportState, common: int) -> ImportState:
    """The state with `common` as the last line."""
    opening = structs.replace(
        state,
        last_seq=state.opening_seq,
        last_id=state.opening_id,
        before_hash=b"",
        last_hash=state.opening_hash,
        balance=state.opening_balance,
        total=0,
        uncollected=0,
    )
    if common == state.opening_seq:
        return opening
    columns = ledger_lines.c
    query = sa.select(columns.stream_id, columns.balance, columns.hash)
    last = connection.execute(query.where(columns.account == state.account, columns.seq == common)).one()
    before = connection.scalar(
        sa.select(columns.hash).where(columns.account == state.account, columns.seq == common - 1)
    )
    sums = sa.select(sa.func.coalesce(sa.func.sum(columns.uncollected), 0)).where(columns.account == state.account)
    return structs.replace(
        opening,
        last_seq=common,
        last_id=last.stream_id,
        before_hash=before if before is not None else state.opening_hash,
        last_hash=last.hash,
        balance=last.balance,
        total=last.balance - state.opening_balance,
        uncollected=int(connection.scalar(sums) or 0),
    )

"""Reads ledger lines from the database: of an account page by page, or of a request."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.import_state import read_states
from gateway.history.line_row import LINE_COLUMNS, line_of
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine
from gateway.ledger.refund import CHARGES, ArchivedCharge

PAGE = 1000  # lines per query

_COLUMNS = [ledger_lines.c[name] for name in LINE_COLUMNS]


def read_history(database: Database, account: str, *, since: int = 0, until: int) -> Iterator[LedgerLine]:
    """The lines up to number `until` that were booked at `since` or later, in Unix milliseconds; in order.

    Each line has its hash. Each page is a transaction of its own.
    """
    columns, after = ledger_lines.c, 0
    wanted = (columns.account == account, columns.seq <= until, columns.at >= since * 1000)
    while True:
        query = sa.select(*_COLUMNS).where(*wanted, columns.seq > after).order_by(columns.seq).limit(PAGE)
        with database.reading() as connection:
            rows = connection.execute(query).all()
        yield from map(line_of, rows)
        if len(rows) < PAGE:
            return
        after = rows[-1].seq


def read_newest_lines(
    connection: Connection, account: str, *, until: int, since: int = 0, most: int
) -> list[LedgerLine]:
    """At most `most` lines up to number `until`, the newest first, booked at `since` or later, in Unix milliseconds."""
    columns = ledger_lines.c
    wanted = (columns.account == account, columns.seq <= until, columns.at >= since * 1000)
    query = sa.select(*_COLUMNS).where(*wanted)
    return [line_of(row) for row in connection.execute(query.order_by(columns.seq.desc()).limit(most))]


def read_request(connection: Connection, request_id: str) -> list[LedgerLine]:
    """The lines with this request id, oldest first; at most a hundred."""
    columns = ledger_lines.c
    query = sa.select(*_COLUMNS).where(columns.request_id == request_id)
    return [line_of(row) for row in connection.execute(query.order_by(columns.account, columns.seq).limit(100))]


def archived_charge(
    database: Database, account: str, request_id: str, checkpoint: ArchiveCheckpoint
) -> ArchivedCharge | None:
    """The call's lines up to the store's archive checkpoint; None if the database has another history up to there."""
    columns = ledger_lines.c
    of_account = columns.account == account
    with database.reading() as connection:
        last = connection.scalar(sa.select(columns.hash).where(of_account, columns.seq == checkpoint.n))
        if last is None:
            state = read_states(connection, [account]).get(account)
            if state is None or state.opening_seq != checkpoint.n:
                return None
            last = state.opening_hash  # the database has removed the line, too
        if last.hex() != checkpoint.hash:
            return None
        wanted = (of_account, columns.request_id == request_id, columns.seq <= checkpoint.n, columns.kind.in_(CHARGES))
        rows = connection.execute(sa.select(*_COLUMNS).where(*wanted).order_by(columns.seq)).all()
    return ArchivedCharge(checkpoint, [line_of(row) for row in rows])

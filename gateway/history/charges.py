"""Finds the lines of a call that have left the store, for a refund or a receipt."""

from __future__ import annotations

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.import_state import read_states
from gateway.history.line_row import LINE_COLUMNS, line_of
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.refund import CHARGES, ArchivedCharge

_COLUMNS = [ledger_lines.c[name] for name in LINE_COLUMNS]


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

"""The newest lines of an account that are part of sessions: rollups have no sessions, as each has few calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import ledger_lines
from gateway.history.rollups import AMENDMENTS, CALLS

MOST_LINES = 5_000  # of an account that are read, with those of no session; those before them are not shown

_line = ledger_lines.c
_KINDS = sorted(CALLS | AMENDMENTS)


class SessionLine(Struct, frozen=True):
    """A line of a call or of its amendment; the time in microseconds since 1970, the amount in nano-units."""

    session: str
    at: int
    amount: int
    is_call: bool
    model: str
    meta: str


class SessionLines(Struct, frozen=True):
    """The lines, the newest first, and from when on there are all."""

    lines: Sequence[SessionLine]
    since: int


def read_session_lines(connection: Connection, account: str, *, since: int, user: str = "") -> SessionLines:
    """The lines at `since` or later, in microseconds since 1970; only those of a user, if given."""
    columns = ("at", "amount", "kind", "user_id", "session", "model", "meta")
    newest = sa.select(*(_line[name] for name in columns)).where(_line.account == account)
    lines = newest.order_by(_line.seq.desc()).limit(MOST_LINES).subquery()
    count, first = connection.execute(sa.select(sa.func.count(), sa.func.min(lines.c.at))).one()
    wanted = [lines.c.session != "", lines.c.at >= since, lines.c.kind.in_(_KINDS)]
    if user:
        wanted.append(lines.c.user_id == user)
    query = sa.select(*(lines.c[name] for name in columns)).where(*wanted).order_by(lines.c.at.desc())
    return SessionLines(
        [_line_of(row) for row in connection.execute(query)], max(since, first or 0) if count == MOST_LINES else since
    )


def _line_of(row: sa.Row[Any]) -> SessionLine:
    return SessionLine(row.session, row.at, int(row.amount), row.kind in CALLS, row.model, row.meta)

"""Calls of all accounts, the newest first, with filters; over the index of the times."""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import ledger_lines
from gateway.history.call_pages import COLUMNS, KINDS, CallRow, call_of

_FILTERS = {
    "account": "account",
    "request_id": "request_id",
    "key": "key_id",
    "user": "user_id",
    "model": "model",
    "provider": "provider",
    "outcome": "outcome",
}


class CallSearch(Struct, frozen=True, kw_only=True):
    """Calls from `since` to before `until`, in microseconds since 1970; an empty filter lets all pass.

    `before`: time, account and number of the last call of the page before.
    """

    since: int
    until: int
    account: str = ""
    request_id: str = ""
    key: str = ""
    user: str = ""
    model: str = ""
    provider: str = ""
    outcome: str = ""
    before: tuple[int, str, int] | None = None


class FoundCall(Struct, frozen=True):
    """A call with the account that pays."""

    account: str
    call: CallRow

    @property
    def position(self) -> tuple[int, str, int]:
        """Its place in the order of all lists."""
        return self.call.at, self.account, self.call.seq


def search_calls(connection: Connection, wanted: CallSearch, *, limit: int) -> list[FoundCall]:
    """At most `limit` calls. Without a filter that an index has, it reads the lines of the range until it has them."""
    table = ledger_lines.c
    query = sa.select(table.account, *(table[name] for name in COLUMNS)).where(
        table.at >= wanted.since, table.at < wanted.until, table.kind.in_(KINDS)
    )
    for name, column in _FILTERS.items():
        if value := getattr(wanted, name):
            query = query.where(table[column] == value)
    if wanted.before is not None:
        at, account, seq = wanted.before
        same = sa.or_(table.account > account, sa.and_(table.account == account, table.seq < seq))
        query = query.where(table.at <= at, sa.or_(table.at < at, same))
    query = query.order_by(table.at.desc(), table.account, table.seq.desc()).limit(limit)
    return [FoundCall(row.account, call_of(row)) for row in connection.execute(query)]

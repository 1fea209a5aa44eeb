"""Calls of all accounts, the newest first, with filters.

With an account, a key or a user they are pages of a few accounts. Otherwise they are read over the index of the times,
with a filter in the hours that have such calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import ledger_lines
from gateway.history.call_hours import accounts_with_calls, hours_with_calls, page_ranges
from gateway.history.call_pages import COLUMNS, KINDS, CallFilter, CallRow, call_column, call_is, call_of, read_calls

_OF_ACCOUNTS = {"key": "key_id", "user": "user_id"}  # filters of the sums that few accounts have
_OF_SITE = {"model": "model", "provider": "provider", "outcome": "outcome"}


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
    """At most `limit` calls."""
    if wanted.request_id:
        return _read_request(connection, wanted, limit)
    if wanted.account or wanted.key or wanted.user:
        return _search_accounts(connection, wanted, limit)
    return _search_times(connection, wanted, limit)


def _search_accounts(connection: Connection, wanted: CallSearch, limit: int) -> list[FoundCall]:
    """The newest of the calls of each account."""
    accounts = [wanted.account] if wanted.account else _accounts(connection, wanted)
    found = [call for account in accounts for call in _search_account(connection, wanted, account, limit)]
    found.sort(key=lambda one: (-one.call.at, one.account, -one.call.seq))
    return found[:limit]


def _accounts(connection: Connection, wanted: CallSearch) -> list[str]:
    return accounts_with_calls(connection, _filters(wanted, _OF_ACCOUNTS), wanted.since, wanted.until)


def _search_account(connection: Connection, wanted: CallSearch, account: str, limit: int) -> list[FoundCall]:
    until, before = wanted.until, 0
    if wanted.before is not None:
        at, last, seq = wanted.before
        until = min(until, at + (account >= last))  # calls of one moment are listed by account
        before = seq if account == last else 0
    filters = {name: getattr(wanted, name) for name in (*_OF_ACCOUNTS, *_OF_SITE)}
    calls = CallFilter(account=account, since=wanted.since, until=until, before=before, **filters)
    return [FoundCall(account, call) for call in read_calls(connection, calls, limit=limit)]


def _search_times(connection: Connection, wanted: CallSearch, limit: int) -> list[FoundCall]:
    found: list[FoundCall] = []
    for since, until in _ranges(connection, wanted, limit):
        query = _query(wanted, _filters(wanted, _OF_SITE), limit - len(found))
        query = query.where(ledger_lines.c.at >= since, ledger_lines.c.at < until)
        found += [FoundCall(row.account, call_of(row)) for row in connection.execute(query)]
        if len(found) >= limit:
            break
    return found


def _ranges(connection: Connection, wanted: CallSearch, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of time that may have such calls, the newest first."""
    filters = _filters(wanted, _OF_SITE)
    until = wanted.until if wanted.before is None else min(wanted.until, wanted.before[0] + 1)
    if not filters:
        yield wanted.since, until
        return
    for first, last in page_ranges(hours_with_calls(connection, filters, wanted.since, until), limit):
        yield max(first, wanted.since), min(last, until)


def _read_request(connection: Connection, wanted: CallSearch, limit: int) -> list[FoundCall]:
    """The calls with a request id; their index finds them."""
    filters = _filters(wanted, {"account": "account", "request_id": "request_id"} | _OF_ACCOUNTS | _OF_SITE)
    query = _query(wanted, filters, limit)
    query = query.where(ledger_lines.c.at >= wanted.since, ledger_lines.c.at < wanted.until)
    return [FoundCall(row.account, call_of(row)) for row in connection.execute(query)]


def _query(wanted: CallSearch, filters: dict[str, str], limit: int) -> sa.Select[tuple[object, ...]]:
    """Calls that pass the filters, after `wanted.before`, in their order."""
    table = ledger_lines.c
    query = sa.select(table.account, *map(call_column, COLUMNS)).where(table.kind.in_(KINDS))
    for column, value in filters.items():
        query = query.where(call_is(column, value))
    if wanted.before is not None:
        at, account, seq = wanted.before
        same = sa.or_(table.account > account, sa.and_(table.account == account, table.seq < seq))
        query = query.where(table.at <= at, sa.or_(table.at < at, same))
    return query.order_by(table.at.desc(), table.account, table.seq.desc()).limit(limit)


def _filters(wanted: CallSearch, columns: dict[str, str]) -> dict[str, str]:
    """The filters that are set, by their columns."""
    return {column: getattr(wanted, name) for name, column in columns.items() if getattr(wanted, name)}

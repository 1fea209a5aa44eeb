"""Calls of all accounts, the newest first, with filters.

With an account, a key or a user they are pages of a few accounts. Otherwise they are read over the index of the times,
with a filter in the hours that have such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import ledger_lines
from gateway.history.call_hours import accounts_with_calls, hours_with_calls, page_ranges
from gateway.history.call_pages import COLUMNS, KINDS, CallFilter, CallRow, call_column, call_is, call_of, read_calls

OF_ACCOUNTS = {"key": "key_id", "user": "user_id"}  # filters of the sums that few accounts have
OF_SITE = {"model": "model", "provider": "provider", "outcome": "outcome"}
Order = Literal["", "cost", "duration"]  # of a list: empty for the newest first, else the highest first


class CallSearch(Struct, frozen=True, kw_only=True):
    """Calls from `since` to before `until`, in microseconds since 1970; an empty filter lets all pass.

    `before`: time, account and number of the last call of the page before. `passed`: what it cost or how long it took,
    where the list is in that order.
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
    session: str = ""
    order: Order = ""
    least_cost: int = 0  # nano-units
    least_duration: int = 0  # ms
    before: tuple[int, str, int] | None = None
    passed: int = 0

    @property
    def is_ranked(self) -> bool:
        """Whether no index helps: the calls are found by `ranked_calls`."""
        return bool(self.order or self.least_cost or self.least_duration)


class FoundCall(Struct, frozen=True):
    """A call with the account that pays."""

    account: str
    call: CallRow

    @property
    def position(self) -> tuple[int, str, int]:
        """Its place in the order of all lists."""
        return self.call.at, self.account, self.call.seq

    @classmethod
    def of(cls, row: Sequence[Any]) -> FoundCall:
        """The call of a row of `calls_query`."""
        return cls(row[0], call_of(row))

    def rank(self, order: Order) -> int:
        """What it cost in nano-units, or how long it took in ms."""
        return {"": 0, "cost": -self.call.amount, "duration": self.call.duration_ms}[order]


def search_calls(connection: Connection, wanted: CallSearch, *, limit: int) -> list[FoundCall]:
    """At most `limit` calls."""
    if wanted.request_id or wanted.session:
        return read_few(connection, wanted, limit)
    if wanted.account or wanted.key or wanted.user:
        return _search_accounts(connection, wanted, limit)
    return _search_times(connection, wanted, limit)


def _search_accounts(connection: Connection, wanted: CallSearch, limit: int) -> list[FoundCall]:
    """The newest of the calls of each account."""
    accounts = accounts_of(connection, wanted) or []
    found = [call for account in accounts for call in _search_account(connection, wanted, account, limit)]
    found.sort(key=order_of(wanted))
    return found[:limit]


def accounts_of(connection: Connection, wanted: CallSearch) -> list[str] | None:
    """The few accounts whose calls may pass; None for those of all."""
    if wanted.account:
        return [wanted.account]
    filters = filters_of(wanted, OF_ACCOUNTS)
    return accounts_with_calls(connection, filters, wanted.since, wanted.until) if filters else None


def order_of(wanted: CallSearch) -> Callable[[FoundCall], Any]:
    """The key by which lists of calls are sorted."""
    return lambda one: (-one.rank(wanted.order), -one.call.at, one.account, -one.call.seq)


def _search_account(connection: Connection, wanted: CallSearch, account: str, limit: int) -> list[FoundCall]:
    until, before = wanted.until, 0
    if wanted.before is not None:
        at, last, seq = wanted.before
        until = min(until, at + (account >= last))  # calls of one moment are listed by account
        before = seq if account == last else 0
    filters = {name: getattr(wanted, name) for name in (*OF_ACCOUNTS, *OF_SITE)}  # a session has an index of its own
    calls = CallFilter(account=account, since=wanted.since, until=until, before=before, **filters)
    return [FoundCall(account, call) for call in read_calls(connection, calls, limit=limit)]


def _search_times(connection: Connection, wanted: CallSearch, limit: int) -> list[FoundCall]:
    found: list[FoundCall] = []
    for since, until in _ranges(connection, wanted, limit):
        query = calls_query(wanted, filters_of(wanted, OF_SITE), limit - len(found))
        query = query.where(ledger_lines.c.at >= since, ledger_lines.c.at < until)
        found += [FoundCall.of(row) for row in connection.execute(query)]
        if len(found) >= limit:
            break
    return found


def _ranges(connection: Connection, wanted: CallSearch, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of time that may have such calls, the newest first."""
    filters = filters_of(wanted, OF_SITE)
    until = end_of(wanted)
    if not filters:
        yield wanted.since, until
        return
    for first, last in page_ranges(hours_with_calls(connection, filters, wanted.since, until), limit):
        yield max(first, wanted.since), min(last, until)


def end_of(wanted: CallSearch) -> int:
    """The end of the range, or a moment after the last call of the page before; ranks are no times."""
    return wanted.until if wanted.before is None or wanted.order else min(wanted.until, wanted.before[0] + 1)


def read_few(connection: Connection, wanted: CallSearch, limit: int) -> list[FoundCall]:
    """The calls with a request id, or of a session; an index finds them."""
    filters = filters_of(wanted, {name: name for name in ("account", "request_id", "session")} | OF_ACCOUNTS | OF_SITE)
    query = calls_query(wanted, filters, limit)
    query = query.where(ledger_lines.c.at >= wanted.since, ledger_lines.c.at < wanted.until)
    return [FoundCall.of(row) for row in connection.execute(query)]


def calls_query(wanted: CallSearch, filters: dict[str, str], limit: int) -> sa.Select[Any]:
    """Calls that pass the filters, after `wanted.before`, in their order."""
    table = ledger_lines.c
    query = sa.select(table.account, *map(call_column, COLUMNS)).where(table.kind.in_(KINDS))
    for column, value in filters.items():
        query = query.where(call_is(column, value))
    if wanted.least_cost or wanted.least_duration:
        query = query.where(table.amount <= -wanted.least_cost, table.duration_ms >= wanted.least_duration)
    rank = {"": sa.literal(0), "cost": -table.amount, "duration": table.duration_ms}[wanted.order]
    if wanted.before is not None:
        at, account, seq = wanted.before
        same = sa.or_(table.account > account, sa.and_(table.account == account, table.seq < seq))
        older = sa.and_(table.at <= at, sa.or_(table.at < at, same))
        query = query.where(
            sa.or_(rank < wanted.passed, sa.and_(rank == wanted.passed, older)) if wanted.order else older
        )
    ranked = (rank.desc(),) if wanted.order else ()
    return query.order_by(*ranked, table.at.desc(), table.account, table.seq.desc()).limit(limit)


def filters_of(wanted: CallSearch, columns: dict[str, str]) -> dict[str, str]:
    """The filters that are set, by their columns."""
    return {column: getattr(wanted, name) for name, column in columns.items() if getattr(wanted, name)}

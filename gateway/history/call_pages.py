"""Pages of an account's calls, the newest first, with filters.

The numbers of an account's lines grow with their times. So the end of a range of time is found by halving, over the
primary key alone, and its lines are read from there back; no index of the times is needed. The statements are made
once: to make one again costs as much as to run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import IN_SESSION, ledger_lines
from gateway.history.call_hours import hours_with_calls, page_ranges
from gateway.history.rollups import RECLAIMED

KINDS = ("use", "reclaim")  # one of them for each call; an `adj` line amends a call
COLUMNS = (
    "seq", "at", "request_id", "kind", "amount", "uncollected", "late", "key_id", "user_id", "model", "served_model",
    "provider", "endpoint", "outcome", "estimated", "attempts", "tokens_in", "tokens_out", "duration_ms",
    "first_token_ms", "tags", "session",
)  # fmt: skip
#: Filters, and their columns in `ledger_lines` and the sums.
_FILTERS = {"key": "key_id", "user": "user_id", "model": "model", "provider": "provider", "outcome": "outcome"}
_WIDER = 4  # so many times more lines are read at once where few are calls that pass

_line = ledger_lines.c
#: The line of a reclaimed call names no outcome; the sums do.
_OUTCOME = sa.case((sa.and_(_line.kind == "reclaim", _line.outcome == ""), RECLAIMED), else_=_line.outcome)
_own = _line.account == sa.bindparam("account")
_first = sa.select(sa.func.min(_line.seq)).where(_own).scalar_subquery()
_last = sa.select(sa.func.max(_line.seq)).where(_own).scalar_subquery()
_ENDS = sa.select(_first, _last)
#: The time of a line; a number may have no line in the database.
_AT = sa.select(_line.at).where(_own, _line.seq >= sa.bindparam("number")).order_by(_line.seq).limit(1)
_AT_EXACTLY = sa.select(_line.at).where(_own, _line.seq == sa.bindparam("number"))


def call_column(name: str) -> sa.ColumnElement[Any]:
    """A column of a call's line, with the outcome that the sums have."""
    return _OUTCOME.label(name) if name == "outcome" else _line[name]


def call_is(name: str, value: Any) -> sa.ColumnElement[bool]:
    """Whether the column of a call has this value."""
    column: sa.ColumnElement[Any] = _OUTCOME if name == "outcome" else _line[name]
    is_equal: sa.ColumnElement[bool] = column == value
    # Both databases use the index of the sessions only where its condition is written out.
    return sa.and_(sa.text(IN_SESSION), is_equal) if name == "session" else is_equal


class CallFilter(Struct, frozen=True, kw_only=True):
    """Calls from `since` to before `until`, in microseconds since 1970; an empty filter lets all pass."""

    account: str
    since: int
    until: int
    key: str = ""
    user: str = ""
    model: str = ""
    provider: str = ""
    outcome: str = ""
    session: str = ""
    least_cost: int = 0  # nano-units
    least_duration: int = 0  # ms
    before: int = 0  # the number of the last line of the page before; 0 for the first page


class CallRow(Struct, frozen=True, kw_only=True):
    """One call as a table shows it; `amount` is what was charged for it, without amendments, in nano-units."""

    seq: int
    at: int  # microseconds since 1970
    request_id: str
    kind: str
    amount: int
    uncollected: int
    late: bool
    key_id: str
    user_id: str
    model: str
    served_model: str
    provider: str
    endpoint: str
    outcome: str
    estimated: bool
    attempts: int
    tokens_in: int
    tokens_out: int
    duration_ms: int
    first_token_ms: int
    tags: dict[str, str]
    session: str


def read_calls(connection: Connection, wanted: CallFilter, *, limit: int) -> list[CallRow]:
    """At most `limit` calls, the newest first."""
    if wanted.session:
        return _read_session(connection, wanted, limit)
    low, high = connection.execute(_ENDS, {"account": wanted.account}).one()
    if low is None or high is None:
        return []
    last = min(high + 1, wanted.before or high + 1)
    found: list[CallRow] = []
    for since, until in _ranges(connection, wanted, limit):
        last = _first_from(connection, wanted.account, until, low, last)
        found += _read_back(connection, wanted, since, low=low, last=last, limit=limit - len(found))
        if len(found) >= limit:
            break
    return found


def _read_session(connection: Connection, wanted: CallFilter, limit: int) -> list[CallRow]:
    """The newest calls of a session, which has an index."""
    filters = {"account": wanted.account, "session": wanted.session, **_filters(wanted)}
    query = sa.select(*map(call_column, COLUMNS)).where(_line.kind.in_(KINDS))
    query = query.where(*(call_is(name, value) for name, value in filters.items()))
    query = query.where(_line.at >= wanted.since, _line.at < wanted.until)
    query = query.where(_line.amount <= -wanted.least_cost, _line.duration_ms >= wanted.least_duration)
    if wanted.before:
        query = query.where(_line.seq < wanted.before)
    return [call_of(row) for row in connection.execute(query.order_by(_line.seq.desc()).limit(limit))]


def _read_back(
    connection: Connection, wanted: CallFilter, since: int, *, low: int, last: int, limit: int
) -> Iterator[CallRow]:
    """The newest calls at `since` or later with numbers from `low` to before `last`."""
    filters, width = _filters(wanted), limit
    least = {"most_amount": -wanted.least_cost, "least_duration": wanted.least_duration}
    query = _page_query(tuple(filters))
    values = least | {
        "account": wanted.account,
        "since": since,
        **{f"is_{name}": value for name, value in filters.items()},
    }
    while low < last and limit > 0:
        first = max(low, last - width)
        rows = connection.execute(query, values | {"first": first, "last": last, "most": limit}).all()
        yield from map(call_of, rows)
        limit -= len(rows)
        if limit > 0 and (time_of_line(connection, wanted.account, first) or since) < since:
            return
        last, width = first, width * _WIDER


@lru_cache(maxsize=64)
def _page_query(filters: tuple[str, ...]) -> sa.Select[Any]:
    """The newest calls with numbers `first` to before `last`, with a value for each of these columns."""
    query = sa.select(*map(call_column, COLUMNS)).where(_own, _line.kind.in_(KINDS))
    query = query.where(_line.seq >= sa.bindparam("first"), _line.seq < sa.bindparam("last"))
    query = query.where(_line.at >= sa.bindparam("since"), _line.amount <= sa.bindparam("most_amount"))
    query = query.where(_line.duration_ms >= sa.bindparam("least_duration"))
    for name in filters:
        query = query.where(call_is(name, sa.bindparam(f"is_{name}")))
    return query.order_by(_line.seq.desc()).limit(sa.bindparam("most"))


def _filters(wanted: CallFilter) -> dict[str, str]:
    """The filters that are set, by their columns."""
    return {column: getattr(wanted, name) for name, column in _FILTERS.items() if getattr(wanted, name)}


def _ranges(connection: Connection, wanted: CallFilter, limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of time that may have such calls, the newest first; a filter that few calls pass reads few lines."""
    filters = _filters(wanted)
    if not filters:
        yield wanted.since, wanted.until
        return
    filters["account"] = wanted.account
    hours = hours_with_calls(connection, filters, wanted.since, _until(connection, wanted))
    for first, until in page_ranges(hours, limit):
        yield max(first, wanted.since), min(until, wanted.until)


def _until(connection: Connection, wanted: CallFilter) -> int:
    """The end of the range, or a moment after the last call of the page before."""
    if not wanted.before:
        return wanted.until
    at = connection.scalar(_AT_EXACTLY, {"account": wanted.account, "number": wanted.before})
    return min(wanted.until, (at or wanted.until) + 1)


def line_numbers(connection: Connection, account: str, since: int, until: int) -> tuple[int, int]:
    """The number of the account's first line from `since` on, and that of the first one from `until` on."""
    low, high = connection.execute(_ENDS, {"account": account}).one()
    if low is None or high is None:
        return 0, 0
    last = _first_from(connection, account, until, low, high + 1)
    return _first_from(connection, account, since, low, last), last


def time_of_line(connection: Connection, account: str, number: int) -> int | None:
    """The time of the first line with this number or a higher one."""
    return connection.scalar(_AT, {"account": account, "number": number})


def _first_from(connection: Connection, account: str, moment: int, low: int, high: int) -> int:
    """The number of the first line at `moment` or later, from `low` on; `high` if there is none before it."""
    middle = high - 1  # most ranges end now: the last line is before the end
    while low < high:
        if (time_of_line(connection, account, middle) or 0) < moment:
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return low


def call_of(row: Sequence[Any]) -> CallRow:
    """The call of a row that ends with all of `COLUMNS`."""
    values = dict(zip(COLUMNS, row[-len(COLUMNS) :], strict=True))
    tags = values.pop("tags")
    return CallRow(**values, tags=_tags_of(tags))


def _tags_of(text: str) -> dict[str, str]:
    """The tags of a call; none if they cannot be read."""
    try:
        return _tags.decode(text) if text else {}
    except (ValueError, RecursionError):
        return {}


_tags = msgspec.json.Decoder(dict[str, str])

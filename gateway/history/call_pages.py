"""Pages of an account's calls, the newest first, with filters.

The numbers of an account's lines grow with their times. So the lines of a range of time are found by halving, over the
primary key alone, and no index of the times is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import ledger_lines
from gateway.history.call_hours import hours_with_calls, page_ranges

KINDS = ("use", "reclaim")  # one of them for each call; an `adj` line amends a call
COLUMNS = (
    "seq", "at", "request_id", "kind", "amount", "uncollected", "late", "key_id", "user_id", "model", "served_model",
    "provider", "endpoint", "outcome", "estimated", "attempts", "tokens_in", "tokens_out", "duration_ms",
    "first_token_ms", "tags",
)  # fmt: skip
#: Filters, and their columns in `ledger_lines` and the sums.
_FILTERS = {"key": "key_id", "user": "user_id", "model": "model", "provider": "provider", "outcome": "outcome"}


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


def read_calls(connection: Connection, wanted: CallFilter, *, limit: int) -> list[CallRow]:
    """At most `limit` calls, the newest first."""
    columns = ledger_lines.c
    own = columns.account == wanted.account
    low = connection.scalar(sa.select(sa.func.min(columns.seq)).where(own))
    high = connection.scalar(sa.select(sa.func.max(columns.seq)).where(own))
    if low is None or high is None:
        return []
    last = min(high + 1, wanted.before or high + 1)
    query = sa.select(*(columns[name] for name in COLUMNS)).where(own, columns.kind.in_(KINDS))
    for name, value in _filters(wanted).items():
        query = query.where(columns[name] == value)
    query = query.where(columns.seq >= sa.bindparam("first"), columns.seq < sa.bindparam("last"))
    query = query.order_by(columns.seq.desc()).limit(sa.bindparam("most"))
    found: list[CallRow] = []
    for since, until in _ranges(connection, wanted, limit):
        first = _first_from(connection, wanted.account, since, low, last)
        last = _first_from(connection, wanted.account, until, first, last)
        page = connection.execute(query, {"first": first, "last": last, "most": limit - len(found)})
        found += [call_of(row) for row in page]
        last = first
        if len(found) >= limit:
            break
    return found


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
    columns = ledger_lines.c
    at = sa.select(columns.at).where(columns.account == wanted.account, columns.seq == wanted.before)
    return min(wanted.until, (connection.scalar(at) or wanted.until) + 1)


def _first_from(connection: Connection, account: str, moment: int, low: int, high: int) -> int:
    """The number of the first line at `moment` or later, from `low` on; `high` if there is none before it."""
    columns = ledger_lines.c
    next_line = sa.select(columns.at).where(columns.account == account, columns.seq >= sa.bindparam("number"))
    at = next_line.order_by(columns.seq).limit(1)  # a number may have no line in the database
    while low < high:
        middle = (low + high) // 2
        if (connection.scalar(at, {"number": middle}) or 0) < moment:
            low = middle + 1
        else:
            high = middle
    return low


def call_of(row: sa.Row[Any]) -> CallRow:
    """The call of a row with all of `COLUMNS`."""
    values = {name: row._mapping[name] for name in COLUMNS}
    tags = msgspec.json.decode(values.pop("tags") or "{}", type=dict[str, str])
    return CallRow(**values, tags=tags)

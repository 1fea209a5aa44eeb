"""The dearest calls, the slowest ones, and those above an amount or a time: a search whose cost has a bound.

No index has these orders, as each would cost every line. So at most `MOST_LINES` lines are read, the newest ones of the
range; a filter that few calls pass leaves out the hours without such calls. The answer says from when on it is
complete, and the search for older calls begins there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.database.tables import ledger_lines
from gateway.history.call_hours import hours_with_calls, page_ranges
from gateway.history.call_pages import line_numbers, time_of_line
from gateway.history.call_search import (
    OF_ACCOUNTS,
    OF_SITE,
    CallSearch,
    FoundCall,
    accounts_of,
    calls_query,
    end_of,
    filters_of,
    order_of,
    read_few,
)

MOST_LINES = 50_000
MOST_RANGES = 100  # of hours with calls that pass the filters

_line = ledger_lines.c


class RankedCalls(Struct, frozen=True):
    """Calls in the order that was asked for; of the range only the part from `since` on was searched."""

    calls: list[FoundCall]
    since: int


def ranked_calls(connection: Connection, wanted: CallSearch, *, limit: int) -> RankedCalls:
    """At most `limit` calls; of those before the returned time nothing is known."""
    if wanted.session:
        return RankedCalls(read_few(connection, wanted, limit), wanted.since)
    accounts = accounts_of(connection, wanted)
    if accounts is None:
        return _search(connection, wanted, limit, MOST_LINES)
    share = max(1, MOST_LINES // max(len(accounts), 1))  # the same for each: one time holds for all
    found = [_search(connection, structs.replace(wanted, account=account), limit, share) for account in accounts]
    since = max((one.since for one in found), default=wanted.since)
    calls = [call for one in found for call in one.calls if call.call.at >= since]
    return RankedCalls(sorted(calls, key=order_of(wanted))[:limit], since)


def _search(connection: Connection, wanted: CallSearch, limit: int, budget: int) -> RankedCalls:
    found: list[FoundCall] = []
    for number, (since, until) in enumerate(_ranges(connection, wanted)):
        if number == MOST_RANGES:
            return RankedCalls(found, until)
        conditions, begin, lines = _window(connection, wanted.account, since, until, budget)
        query = calls_query(wanted, filters_of(wanted, OF_SITE | OF_ACCOUNTS | {"account": "account"}), limit)
        rows = connection.execute(query.where(*conditions, _line.at >= begin, _line.at < until))
        found = sorted([*found, *map(FoundCall.of, rows)], key=order_of(wanted))[:limit]
        budget -= lines
        if begin > since or budget <= 0:
            return RankedCalls(found, begin)
        if not wanted.order and len(found) == limit:
            break
    return RankedCalls(found, wanted.since)


def _ranges(connection: Connection, wanted: CallSearch) -> Iterator[tuple[int, int]]:
    """Ranges of time that may have such calls, the newest first."""
    filters, until = filters_of(wanted, OF_SITE | OF_ACCOUNTS), end_of(wanted)
    if not filters:
        yield wanted.since, until
        return
    if wanted.account:
        filters["account"] = wanted.account
    hours = hours_with_calls(connection, filters, wanted.since, until)
    for first, last in islice(page_ranges(hours, MOST_LINES), MOST_RANGES + 1):
        yield max(first, wanted.since), min(last, until)


def _window(
    connection: Connection, account: str, since: int, until: int, budget: int
) -> tuple[list[sa.ColumnElement[bool]], int, int]:
    """The newest lines of a range: conditions that find them, the time of the oldest, and how many there are."""
    if account:
        first, last = line_numbers(connection, account, since, until)
        if last - first > budget:
            since = time_of_line(connection, account, last - budget) or since
            first, _ = line_numbers(connection, account, since, until)  # with all lines of that moment
        return [_line.account == account, _line.seq >= first, _line.seq < last], since, last - first
    within = (_line.at >= since, _line.at < until)
    oldest = sa.select(_line.at).where(*within).order_by(_line.at.desc()).offset(budget - 1).limit(1)
    if (begin := connection.scalar(oldest)) is not None:
        return [], int(begin), budget
    count: Any = connection.scalar(sa.select(sa.func.count()).select_from(ledger_lines).where(*within))
    return [], since, int(count)

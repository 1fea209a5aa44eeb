"""The hours in which there are calls that pass filters: from the sums, so that few lines are read for them.

Days come before hours, and the newest come first, as they are asked for. So a page of calls costs what its days cost,
and a filter that few calls pass costs little more than a look at one index of the days.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.database.tables import SITE_LABELS, usage_daily, usage_hourly, usage_site_daily, usage_site_hourly
from gateway.history.calendar import DAY, HOUR

OF_KEYS = frozenset({"key_id", "user_id"})


def hours_with_calls(
    connection: Connection, filters: Mapping[str, str], since: int, until: int
) -> Iterator[tuple[int, int]]:
    """The first moments of hours from `since` to before `until` and their numbers of calls, the newest first.

    `filters` are values of columns of the sums; with a key or a user there must be an account. Times are microseconds
    since 1970.
    """
    is_site = filters.keys() <= set(SITE_LABELS)
    days, hours = (usage_site_daily, usage_site_hourly) if is_site else (usage_daily, usage_hourly)
    by_key = bool(filters.keys() & OF_KEYS)
    day = days.c.day
    query = sa.select(day, days.c.key_id if by_key else sa.literal_column("''")).distinct()
    query = query.where(day >= since // DAY * DAY, day < until, *_passes(days, filters)).order_by(day.desc())
    for start, rows in groupby(connection.execute(query), key=lambda row: int(row[0])):
        first, last = max(start, since // HOUR * HOUR), min(start + DAY, until)
        keys = [row[1] for row in rows]
        conditions = [*_passes(hours, filters), *_within(hours, first, last, keys if by_key else [])]
        sums = sa.select(hours.c.hour, sa.func.sum(hours.c.calls)).where(*conditions)
        for hour, calls in connection.execute(sums.group_by(hours.c.hour).order_by(hours.c.hour.desc())):
            yield int(hour), int(calls)


def page_ranges(hours: Iterable[tuple[int, int]], limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of time over the hours: an hour is joined to the one before it until the range has `limit` calls."""
    first, until, calls = 0, 0, 0
    for hour, count in hours:
        if calls and (hour + HOUR != first or calls >= limit):
            yield first, until
            calls = 0
        if not calls:
            until = hour + HOUR
        first, calls = hour, calls + count
    if calls:
        yield first, until


def accounts_with_calls(connection: Connection, filters: Mapping[str, str], since: int, until: int) -> list[str]:
    """The accounts with calls that pass the filters on the days of the range."""
    columns = usage_daily.c
    query = sa.select(columns.account).distinct().where(*_passes(usage_daily, filters))
    return list(connection.scalars(query.where(columns.day >= since // DAY * DAY, columns.day < until)))


def _passes(table: sa.Table, filters: Mapping[str, str]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == value for name, value in filters.items()]


def _within(table: sa.Table, first: int, last: int, keys: list[Any]) -> list[sa.ColumnElement[bool]]:
    """The hours of a part of a day; with keys each hour by itself, as the primary key has an hour before the keys."""
    hour = table.c.hour
    if not keys:
        return [hour >= first, hour < last]
    return [hour.in_(range(first, last, HOUR)), table.c.key_id.in_(keys)]

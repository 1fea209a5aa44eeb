"""Reads sums of usage for any range of whole hours, from the rollup that has the fewest rows for it.

A range is cut into segments: whole months, whole days, and the hours at both ends. A segment without accounts, users or
keys is read from the sums over all accounts. Amounts are nano-units, times microseconds since 1970 in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.tables import (
    MAXIMA,
    MEASURES,
    SITE_LABELS,
    usage_daily,
    usage_daily_tags,
    usage_hourly,
    usage_monthly,
    usage_site_daily,
    usage_site_hourly,
)
from gateway.errors import InvalidValue
from gateway.history.calendar import DAY, HOUR, month_of, next_month
from gateway.ledger.line_meta import NO_ERRORS

Period = Literal["hour", "day", "month"]
PERIODS: tuple[Period, ...] = ("hour", "day", "month")
#: What sums are grouped and filtered by, and its column in the rollups. A tag has two: `NAME=VALUE`.
DIMENSIONS = {
    "account": "account",
    "user": "user_id",
    "key": "key_id",
    "model": "model",
    "provider": "provider",
    "endpoint": "endpoint",
    "outcome": "outcome",
    "tag": "tag",
}
TAGGED = frozenset({"account", "user", "key", "model", "tag"})  # what sums by tag have
MOST_ROWS = 100_000  # in one answer: some 100 MB
ERRORS = "errors"


class Sums(dict[str, int]):
    """Sums by measure; a measure that no call of the answer has is not in it, and counts 0.

    A report may have 100,000 of them: with all measures each took 3.5 KB.
    """

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return 0


class TooManyRows(InvalidValue):
    """The sums of a query have more groups than one answer may have."""


class UsageQuery(Struct, frozen=True, kw_only=True):
    """Whole hours from `since` to before `until`; `filters` are permitted values by dimension.

    With `tag` the range is one of whole days and the dimensions are of `TAGGED`; a call counts once for each tag. A
    value of the filter `tag` is `NAME` or `NAME=VALUE`.
    `most` is the most rows of the answer, at most and by default `MOST_ROWS`.
    """

    since: int
    until: int
    dimensions: tuple[str, ...] = ()
    period: Period | None = None
    filters: Mapping[str, Sequence[str]] = {}
    most: int | None = None

    @property
    def columns(self) -> set[str]:
        """The labels that are read."""
        return {DIMENSIONS[name] for name in (*self.dimensions, *self.filters)}

    @property
    def by_tag(self) -> bool:
        """Whether tags are read."""
        return "tag" in self.columns


class UsageRow(Struct, frozen=True):
    """The sums of one group: the values of the dimensions, the first moment of the period, and each measure.

    `period` is 0 without a period. `sums` also has `ERRORS`, the calls with another outcome than those of `NO_ERRORS`,
    except with tags, whose sums have no outcome.
    """

    labels: tuple[str, ...]
    period: int
    sums: Sums


class Segment(Struct, frozen=True):
    """A part of the range, and its period if that is the same in all of it."""

    table: sa.Table
    since: int
    until: int
    period: int | None = None


def read_usage(connection: Connection, query: UsageQuery) -> list[UsageRow]:
    """The sums by group, ordered by period and labels; TooManyRows for more groups than an answer may have."""
    most = MOST_ROWS if query.most is None else min(query.most, MOST_ROWS)
    measures = (*_used_measures(connection, query), *(() if query.by_tag else (ERRORS,)))
    found: dict[tuple[Any, ...], list[int]] = {}
    for segment in segments_of(query):
        for key, sums in _read(connection, query, segment, measures, most):
            known = found.get(key)
            found[key] = sums if known is None else list(map(together, measures, known, sums))
        if len(found) > most:
            raise too_many_rows(most)
    return [UsageRow(key[1:], key[0], Sums(zip(measures, found.pop(key), strict=True))) for key in sorted(found)]


def too_many_rows(most: int) -> TooManyRows:
    """The refusal of a query."""
    return TooManyRows(f"The report has more than {most:,} rows; choose a shorter range or fewer groups")


_day = usage_site_daily.c.day
_EXTREMES = sa.select(
    *(sa.func.max(usage_site_daily.c[name]) for name in MEASURES),
    *(sa.func.min(usage_site_daily.c[name]) for name in MEASURES),
).where(_day >= sa.bindparam("since"), _day < sa.bindparam("until"))


def _used_measures(connection: Connection, query: UsageQuery) -> tuple[str, ...]:
    """The measures that any call of these days has. Most are never used, and each costs as much as the rows it sums."""
    values = {"since": query.since // DAY * DAY, "until": query.until}
    extremes, count = connection.execute(_EXTREMES, values).one(), len(MEASURES)
    used = [name for at, name in enumerate(MEASURES) if extremes[at] or extremes[at + count]]
    return tuple(used) or ("calls",)


def _read(
    connection: Connection, query: UsageQuery, segment: Segment, measures: tuple[str, ...], most: int
) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    by_time = query.period is not None and segment.period is None
    filters = {name: values for name, values in query.filters.items() if name != "tag"}
    sizes = tuple((name, len(values) == 1) for name, values in filters.items())
    select = _statement(segment.table, query.dimensions, measures, sizes, by_time=by_time)
    if "tag" in query.filters:
        select = select.where(_tag_filter(query.filters["tag"]))
    given: dict[str, Any] = {"since": segment.since, "until": segment.until, "limit": most + 1}
    given |= {f"of_{name}": values[0] if len(values) == 1 else list(values) for name, values in filters.items()}
    width = len(query.dimensions) + by_time
    for row in connection.execute(select, given):
        labels = tuple(row[:width])
        if not by_time:
            labels = (segment.period or 0, *labels)
        yield labels, [int(value) for value in row[width:]]


@lru_cache(maxsize=256)
def _statement(
    table: sa.Table,
    dimensions: tuple[str, ...],
    measures: tuple[str, ...],
    filters: tuple[tuple[str, bool], ...],
    *,
    by_time: bool,
) -> sa.Select[Any]:
    """The sums of a rollup; it is made once, because that takes as long as to run it.

    `filters`: dimensions, and whether each has one value.
    """
    start = table.primary_key.columns[0]
    grouped: list[sa.ColumnElement[Any]] = [label_of(table, name) for name in dimensions]
    if by_time:
        grouped.insert(0, start)
    select = sa.select(*grouped, *(_total(table, name) for name in measures))
    select = select.where(start >= sa.bindparam("since"), start < sa.bindparam("until"))
    for name, has_one_value in filters:
        value: sa.BindParameter[Any] = sa.bindparam(f"of_{name}", expanding=not has_one_value)
        label = label_of(table, name)
        select = select.where(label == value if has_one_value else label.in_(value))
    select = select.group_by(*grouped) if grouped else select.having(sa.func.count() > 0)
    return select.limit(sa.bindparam("limit", type_=sa.Integer))


def together(measure: str, some: int, other: int) -> int:
    """The value of a measure for two groups of calls."""
    return max(some, other) if measure in MAXIMA else some + other


def _total(table: sa.Table, name: str) -> sa.ColumnElement[int]:
    column = _measure(table, name)
    return sa.func.max(column) if name in MAXIMA else sa.func.sum(column)


def _measure(table: sa.Table, name: str) -> sa.ColumnElement[int]:
    if name != ERRORS:
        return table.c[name]
    return sa.case((table.c.outcome.not_in(NO_ERRORS), table.c.calls), else_=0)


def filter_conditions(table: sa.Table, query: UsageQuery) -> list[sa.ColumnElement[bool]]:
    """The filters of a query without tags."""
    return [label_of(table, name).in_(list(values)) for name, values in query.filters.items()]


def label_of(table: sa.Table, dimension: str) -> sa.ColumnElement[str]:
    """What a dimension has in the rows of a rollup."""
    return sa.literal_column("tag || '=' || value") if dimension == "tag" else table.c[DIMENSIONS[dimension]]


def _tag_filter(values: Sequence[str]) -> sa.ColumnElement[bool]:
    columns, conditions = usage_daily_tags.c, []
    for text in values:
        name, equals, value = text.partition("=")
        conditions.append(sa.and_(columns.tag == name, columns.value == value) if equals else columns.tag == name)
    return sa.or_(*conditions)


def segments_of(query: UsageQuery) -> Iterator[Segment]:
    """The parts of the range."""
    since, until = query.since, query.until
    first, last = -(-since // DAY) * DAY, until // DAY * DAY
    if query.period == "hour":
        yield Segment(_by_hour(query), since, until)
        return
    if first > last:  # within one day
        yield from _hours(query, since, until)
        return
    yield from _hours(query, since, first)
    yield from _days(query, first, last)
    yield from _hours(query, last, until)


def _hours(query: UsageQuery, since: int, until: int) -> Iterator[Segment]:
    """Hours of one day."""
    if since < until:
        yield Segment(_by_hour(query), since, until, period_start(query, since))


def _days(query: UsageQuery, since: int, until: int) -> Iterator[Segment]:
    """Whole days."""
    if since >= until:
        return
    table = _by_day(query)
    if query.period == "day":
        yield Segment(table, since, until)
        return
    first = since if month_of(since) == since else next_month(month_of(since))
    last = month_of(until)
    if first > last:  # within one month
        yield Segment(table, since, until, period_start(query, since))
        return
    if since < first:
        yield Segment(table, since, first, period_start(query, since))
    if first < last:
        yield from _months(query, table, first, last)
    if last < until:
        yield Segment(table, last, until, period_start(query, last))


def _by_hour(query: UsageQuery) -> sa.Table:
    return usage_site_hourly if query.columns <= set(SITE_LABELS) else usage_hourly


def _by_day(query: UsageQuery) -> sa.Table:
    if query.by_tag:
        return usage_daily_tags
    return usage_site_daily if query.columns <= set(SITE_LABELS) else usage_daily


def _months(query: UsageQuery, table: sa.Table, since: int, until: int) -> Iterator[Segment]:
    """Whole months."""
    if table is usage_daily:
        yield Segment(usage_monthly, since, until)
        return
    if query.period is None:
        yield Segment(table, since, until, 0)
        return
    while since < until:  # these have no sums by month
        yield Segment(table, since, next_month(since), period_start(query, since))
        since = next_month(since)


def period_start(query: UsageQuery, moment: int) -> int:
    """The first moment of the period in which a moment is; 0 without a period."""
    match query.period:
        case "hour":
            return moment // HOUR * HOUR
        case "day":
            return moment // DAY * DAY
        case "month":
            return month_of(moment)
    return 0

"""Sums of usage by hour, day and month, kept in the same transaction as the lines they sum.

A line of a call counts once: `use` and `reclaim` lines are calls; an `adj` line of a key amends a reclaimed call, and a
`refund` line of a key gives a call's money back, so both change sums but not `calls`. Other lines are not usage: they
are summed as movements of money (`site_money`). Lines that leave the history are subtracted: `write(…, sign=-1)`.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.billing.usage import Usage
from gateway.database.bulk import add_rows
from gateway.database.engine import Database
from gateway.database.tables import (
    ADDITIVE,
    DURATION_CELLS,
    FIRST_TOKEN_CELLS,
    LABELS,
    MAXIMA,
    MEASURES,
    ROLLUPS,
    SITE_LABELS,
    TAG_LABELS,
    TIMES_MS,
    USAGE,
    USER,
    ledger_lines,
    money_site_hourly,
    usage_daily,
    usage_daily_tags,
    usage_hourly,
    usage_monthly,
    usage_site_daily,
    usage_site_hourly,
)
from gateway.history.calendar import DAY, HOUR, month_of_day
from gateway.history.exclusive import importers_waiting
from gateway.history.line_row import LINE_COLUMNS, LineFacts, facts_of, line_of
from gateway.history.site_money import Movements
from gateway.ledger.line import LedgerLine

CALLS = frozenset({"use", "reclaim"})
AMENDMENTS = frozenset({"adj", "refund"})
RECLAIMED = "reclaimed"  # the outcome of a call that was charged at its last checkpoint

_AT = {name: index for index, name in enumerate(MEASURES)}
_CALLS, _ESTIMATED, _COST, _UNCOLLECTED, _UPSTREAM_COST, _UPSTREAM_COST_KNOWN = range(6)
_HOUR_MS = HOUR // 1000
_DURATION, _STREAMS, _FIRST_TOKEN = (_AT[name] for name in ("duration_ms", "streams", "first_token_ms"))
_DURATION_CELL, _FIRST_TOKEN_CELL = _AT[DURATION_CELLS[0]], _AT[FIRST_TOKEN_CELLS[0]]
_LONGEST, _LONGEST_FIRST_TOKEN = (_AT[name] for name in MAXIMA)
_WIDTH = len(MEASURES)
_FIRST_MAXIMUM = -len(MAXIMA)  # in every list of values of a row
_TEXT_IN, _CACHED, _TEXT_OUT, _REASONING = (_AT[name] for name in ("in_text", "in_cached", "out_text", "out_reasoning"))
#: The other buckets of `Usage` that are integers of the same name here. Most calls have none of them.
_RARE = tuple(
    name
    for name in USAGE
    if name not in ("in_text", "in_cached", "out_text", "out_reasoning", "images", "audio_ms_in", "audio_ms_out")
)
_rare_counts = operator.attrgetter(*_RARE, "images", "audio_seconds_in", "audio_seconds_out")

Key = tuple[Any, ...]  # the start of a period, labels, and the user
Sums = dict[Key, list[int]]
_SITE = slice(3, 3 + len(SITE_LABELS))  # of a key by hour
REBUILT_AT_ONCE = 5000  # lines summed at once

_COLUMNS = [ledger_lines.c[name] for name in LINE_COLUMNS]


class Rollup:
    """Sums of a batch of lines, by hour and labels."""

    def __init__(self) -> None:
        self._hours: Sums = {}
        self._tags: Sums = {}  # by day
        self._movements = Movements()

    def add(self, line: LedgerLine, facts: LineFacts) -> None:
        """Add a line."""
        if not costs_usage(line, facts):
            self._movements.add(line)
            return
        hour = line.milliseconds // _HOUR_MS * HOUR
        outcome = facts.outcome or (RECLAIMED if line.kind == "reclaim" else "")
        key: Key = (hour, line.account, facts.key, facts.model, facts.provider, facts.endpoint, outcome, facts.user)
        cells = self._hours.get(key)
        if cells is None:
            cells = self._hours[key] = [0] * _WIDTH
        _count(cells, line, facts)
        for tag, value in facts.tags.items():
            key = (hour // DAY * DAY, line.account, tag, value, facts.key, facts.model, facts.user)
            _count(self._tags.setdefault(key, [0] * _WIDTH), line, facts)

    def hours(self) -> Iterable[tuple[Key, list[int]]]:
        """The sums by hour, account, key, model, provider, endpoint, outcome and user, in the order of `MEASURES`."""
        return self._hours.items()

    def write(self, connection: Connection, *, sign: int = 1) -> None:
        """Add the sums to the rollups, in the connection's transaction; with `sign=-1`, subtract them."""
        names, hours = _used(self._hours, sign)
        days = _regrouped(hours, lambda key: (key[0] // DAY * DAY, *key[1:]))
        months = _regrouped(days, lambda key: (month_of_day(key[0]), *key[1:]))
        site_hours = _regrouped(hours, lambda key: (key[0], *key[_SITE]))
        site_days = _regrouped(site_hours, lambda key: (key[0] // DAY * DAY, *key[1:]))
        for table, labels, sums in (
            (usage_hourly, (*LABELS, USER), hours),
            (usage_daily, (*LABELS, USER), days),
            (usage_monthly, (*LABELS, USER), months),
            (usage_site_hourly, SITE_LABELS, site_hours),
            (usage_site_daily, SITE_LABELS, site_days),
        ):
            _write(connection, table, labels, names, sums)
        _write(connection, usage_daily_tags, (*TAG_LABELS, USER), *_used(self._tags, sign))
        self._movements.write(connection, sign=sign)


def costs_usage(line: LedgerLine, facts: LineFacts) -> bool:
    """Whether the line's amount is a part of what a call cost."""
    return line.kind in CALLS or bool(facts.key and line.kind in AMENDMENTS)


def clear(connection: Connection) -> None:
    """Empty all rollups, in the connection's transaction."""
    for table in (*ROLLUPS, money_site_hourly):
        connection.execute(table.delete())


def _count(cells: list[int], line: LedgerLine, facts: LineFacts) -> None:
    """Add a line to the sums of its labels."""
    cells[_COST] -= line.amount
    if line.uncollected:
        cells[_UNCOLLECTED] += line.uncollected
    if facts.upstream_cost is not None:  # a refund has none
        cells[_UPSTREAM_COST] += facts.upstream_cost
        cells[_UPSTREAM_COST_KNOWN] += 1
    if facts.usage is not None:
        _add_usage(cells, facts.usage)
    if line.kind not in CALLS:
        return
    cells[_CALLS] += 1
    if facts.estimated:
        cells[_ESTIMATED] += 1
    duration, first_token = facts.duration_ms, facts.first_token_ms
    cells[_DURATION] += duration
    cells[_DURATION_CELL + bisect_left(TIMES_MS, duration)] += 1
    cells[_LONGEST] = max(cells[_LONGEST], duration)
    if first_token:
        cells[_STREAMS] += 1
        cells[_FIRST_TOKEN] += first_token
        cells[_FIRST_TOKEN_CELL + bisect_left(TIMES_MS, first_token)] += 1
        cells[_LONGEST_FIRST_TOKEN] = max(cells[_LONGEST_FIRST_TOKEN], first_token)


def _add_usage(cells: list[int], usage: Usage) -> None:
    cells[_TEXT_IN] += usage.in_text
    cells[_CACHED] += usage.in_cached
    cells[_TEXT_OUT] += usage.out_text
    cells[_REASONING] += usage.out_reasoning
    if not any(_rare_counts(usage)):
        return
    for name in _RARE:
        cells[_AT[name]] += getattr(usage, name)
    if usage.images is not None:
        cells[_AT["images"]] += usage.images.count
    cells[_AT["audio_ms_in"]] += round(usage.audio_seconds_in * 1000)
    cells[_AT["audio_ms_out"]] += round(usage.audio_seconds_out * 1000)


def _used(sums: Sums, sign: int) -> tuple[tuple[str, ...], Sums]:
    """The measures that are not zero in all sums, and the maxima: most calls have few of them."""
    columns = zip(*sums.values(), strict=True)
    used = [at for at, column in enumerate(columns) if any(column) and at < len(ADDITIVE)] or [_CALLS]
    names = (*(MEASURES[at] for at in used), *MAXIMA)
    return names, {key: [*(sign * cells[at] for at in used), *cells[_FIRST_MAXIMUM:]] for key, cells in sums.items()}


def _together(some: Sequence[int], others: Sequence[int]) -> list[int]:
    """The values of two rows in one."""
    maxima = map(max, some[_FIRST_MAXIMUM:], others[_FIRST_MAXIMUM:])
    return [*map(operator.add, some[:_FIRST_MAXIMUM], others[:_FIRST_MAXIMUM]), *maxima]


def _regrouped(sums: Sums, key_of: Callable[[Key], Key]) -> Sums:
    """The sums by other keys."""
    found: Sums = {}
    for old, cells in sums.items():
        key = key_of(old)
        known = found.get(key)
        found[key] = cells if known is None else _together(known, cells)
    return found


def _write(
    connection: Connection, table: sa.Table, labels: tuple[str, ...], names: tuple[str, ...], sums: Sums
) -> None:
    """Add the sums to a rollup, in the order of its primary key: two transactions lock the same rows in one order."""
    key_columns = table.primary_key.columns
    width, period = len(key_columns), key_columns[0].name
    rows: list[tuple[Any, ...]] = []
    last: Key = ()
    for key, cells in sorted(sums.items()):
        if key[:width] == last:  # the key's user has changed; a row keeps the first one
            before = rows.pop()
            rows.append((*before[: len(key)], *_together(before[len(key) :], cells)))
        else:
            last = key[:width]
            rows.append((*key, *cells))
    add_rows(connection, table, (period, *labels), names, rows)


def rebuild_rollups(database: Database) -> int:
    """Compute all sums again from the ledger lines, in one transaction; returns the number of lines that were read.

    Importers wait meanwhile, and readers see the old sums till then.
    """
    columns = ledger_lines.c
    order = (columns.account, columns.seq)
    lines, last = 0, ("", 0)
    with importers_waiting(database), database.writing() as connection:
        clear(connection)
        while True:
            query = sa.select(*_COLUMNS).where(sa.tuple_(*order) > sa.tuple_(*map(sa.literal, last)))
            rows = connection.execute(query.order_by(*order).limit(REBUILT_AT_ONCE)).all()
            rollup = Rollup()
            for row in rows:
                line = line_of(row)
                rollup.add(line, facts_of(line.meta_text))
            rollup.write(connection)
            lines += len(rows)
            if len(rows) < REBUILT_AT_ONCE:
                return lines
            last = (rows[-1].account, rows[-1].seq)

"""Sums of usage by hour, day and month, kept in the same transaction as the lines they sum.

A line of a call counts once: `use` and `reclaim` lines are calls; an `adj` line of a key amends a reclaimed call, and a
`refund` line of a key gives a call's money back, so both change sums but not `calls`. Other lines are not usage. Lines
that leave the history are subtracted with `sign=-1`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.billing.usage import Usage
from gateway.database.engine import Database
from gateway.database.tables import (
    DURATION_MS,
    FIRST_TOKEN_MS,
    LABELS,
    MEASURES,
    ROLLUPS,
    SITE_LABELS,
    SUMS,
    TAG_LABELS,
    USAGE,
    USER,
    usage_daily,
    usage_daily_tags,
    usage_hourly,
    usage_monthly,
    usage_site_daily,
    usage_site_hourly,
)
from gateway.history.calendar import DAY, HOUR, month_of_day
from gateway.history.line_row import LineFacts
from gateway.ledger.line import LedgerLine

CALLS = frozenset({"use", "reclaim"})
AMENDMENTS = frozenset({"adj", "refund"})
RECLAIMED = "reclaimed"  # the outcome of a call that was charged at its last checkpoint

_AT = {name: index for index, name in enumerate(MEASURES)}
_CALLS, _ESTIMATED, _COST, _UNCOLLECTED, _UPSTREAM_COST, _UPSTREAM_COST_KNOWN = range(6)
_DURATION, _STREAMS, _FIRST_TOKEN = (_AT[name] for name in ("duration_ms", "streams", "first_token_ms"))
_DURATION_CELL, _FIRST_TOKEN_CELL = len(SUMS), len(SUMS) + len(DURATION_MS) + 1
_WIDTH = len(MEASURES)
#: The integer buckets of `Usage` that have the same name here.
_COUNTS = tuple((name, _AT[name]) for name in USAGE if name not in ("images", "audio_ms_in", "audio_ms_out"))

Labels = tuple[str, ...]
Sums = dict[tuple[int, Labels], list[int]]
_SITE = slice(2, 2 + len(SITE_LABELS))  # of the labels by hour


class Rollup:
    """Sums of a batch of lines, by hour and labels."""

    def __init__(self) -> None:
        self._hours: Sums = {}
        self._tags: Sums = {}  # by day

    def add(self, line: LedgerLine, facts: LineFacts, sign: int = 1) -> None:
        """Add a line, or subtract it."""
        if not costs_usage(line, facts):
            return
        outcome = facts.outcome or (RECLAIMED if line.kind == "reclaim" else "")
        hour = line.milliseconds * 1000 // HOUR * HOUR
        labels: Labels = (line.account, facts.key, facts.model, facts.provider, facts.endpoint, outcome, facts.user)
        _count(self._hours, (hour, labels), line, facts, sign)
        for tag, value in facts.tags.items():
            labels = (line.account, tag, value, facts.key, facts.model, facts.user)
            _count(self._tags, (hour // DAY * DAY, labels), line, facts, sign)

    def write(self, connection: Connection, database: Database) -> None:
        """Add the sums to the rollups, in the connection's transaction."""
        if not self._hours:
            return
        days: Sums = {}
        months: Sums = {}
        site: Sums = {}
        site_hours: Sums = {}
        for (hour, labels), cells in self._hours.items():
            day = hour // DAY * DAY
            _merge(days, (day, labels), cells)
            _merge(months, (month_of_day(day), labels), cells)
            _merge(site, (day, labels[_SITE]), cells)
            _merge(site_hours, (hour, labels[_SITE]), cells)
        for table, labels_of, sums in (
            (usage_hourly, (*LABELS, USER), self._hours),
            (usage_daily, (*LABELS, USER), days),
            (usage_monthly, (*LABELS, USER), months),
            (usage_daily_tags, (*TAG_LABELS, USER), self._tags),
            (usage_site_daily, SITE_LABELS, site),
            (usage_site_hourly, SITE_LABELS, site_hours),
        ):
            if not sums:
                continue
            connection.execute(_upsert(database, table), list(_rows(table, labels_of, sums)))


def costs_usage(line: LedgerLine, facts: LineFacts) -> bool:
    """Whether the line's amount is a part of what a call cost."""
    return line.kind in CALLS or bool(facts.key and line.kind in AMENDMENTS)


def clear(connection: Connection) -> None:
    """Empty all rollups, in the connection's transaction."""
    for table in ROLLUPS:
        connection.execute(table.delete())


def _count(sums: Sums, key: tuple[int, Labels], line: LedgerLine, facts: LineFacts, sign: int) -> None:
    """Add a line to the sums of these labels."""
    cells = sums.get(key)
    if cells is None:
        cells = sums[key] = [0] * _WIDTH
    cells[_COST] -= sign * line.amount
    cells[_UNCOLLECTED] += sign * line.uncollected
    if facts.upstream_cost is not None:  # a refund has none
        cells[_UPSTREAM_COST] += sign * facts.upstream_cost
        cells[_UPSTREAM_COST_KNOWN] += sign
    if facts.usage is not None:
        _add_usage(cells, facts.usage, sign)
    if line.kind not in CALLS:
        return
    cells[_CALLS] += sign
    if facts.estimated:
        cells[_ESTIMATED] += sign
    cells[_DURATION] += sign * facts.duration_ms
    cells[_DURATION_CELL + bisect_left(DURATION_MS, facts.duration_ms)] += sign
    if facts.first_token_ms:
        cells[_STREAMS] += sign
        cells[_FIRST_TOKEN] += sign * facts.first_token_ms
        cells[_FIRST_TOKEN_CELL + bisect_left(FIRST_TOKEN_MS, facts.first_token_ms)] += sign


def _add_usage(cells: list[int], usage: Usage, sign: int) -> None:
    for name, index in _COUNTS:
        value = getattr(usage, name)
        if value:
            cells[index] += sign * value
    if usage.images is not None:
        cells[_AT["images"]] += sign * usage.images.count
    if usage.audio_seconds_in:
        cells[_AT["audio_ms_in"]] += sign * round(usage.audio_seconds_in * 1000)
    if usage.audio_seconds_out:
        cells[_AT["audio_ms_out"]] += sign * round(usage.audio_seconds_out * 1000)


def _merge(sums: Sums, key: tuple[int, Labels], cells: list[int]) -> None:
    known = sums.get(key)
    sums[key] = list(cells) if known is None else [a + b for a, b in zip(known, cells, strict=True)]


def _rows(
    table: sa.Table, names: tuple[str, ...], sums: Mapping[tuple[int, Labels], list[int]]
) -> Iterable[dict[str, Any]]:
    """The rows in the order of the primary key: two transactions that add to the same rows lock them in one order."""
    period = table.primary_key.columns[0].name
    for (start, labels), cells in sorted(sums.items()):
        row: dict[str, Any] = dict(zip(MEASURES, cells, strict=True))
        row |= zip(names, labels, strict=True)
        row[period] = start
        yield row


def _upsert(database: Database, table: sa.Table) -> sa.Insert:
    insert = database.insert(table)
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: table.c[name] + insert.excluded[name] for name in MEASURES},
    )

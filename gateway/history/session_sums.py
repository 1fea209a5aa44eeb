"""Sums of the calls of one session, read from their lines: rollups have no sessions, as each has few calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.database.tables import IN_SESSION, MEASURES, ledger_lines
from gateway.errors import InvalidValue
from gateway.history.line_row import LINE_COLUMNS, facts_of, line_of
from gateway.history.rollups import Rollup
from gateway.history.usage_sums import ERRORS, Sums, UsageQuery, UsageRow, period_start, together
from gateway.ledger.line_meta import NO_ERRORS

MOST_LINES = 50_000  # of a session; an agent that calls once a second for 13 hours
#: The labels of a rollup's row after its hour.
_LABELS = ("account", "key", "model", "provider", "endpoint", "outcome", "user")
_COLUMNS = {"account": "account", "key": "key_id", "model": "model", "user": "user_id"}

_line = ledger_lines.c


def read_sessions(connection: Connection, query: UsageQuery, sessions: Sequence[str]) -> list[UsageRow]:
    """The sums of the calls of these sessions by group, as `read_usage`; InvalidValue for more than `MOST_LINES` lines.

    The dimensions and filters are those of `usage_sums` without tags.
    """
    lines = sa.select(*(_line[name] for name in LINE_COLUMNS)).where(sa.text(IN_SESSION), _line.session.in_(sessions))
    lines = lines.where(_line.at >= query.since, _line.at < query.until)
    for name, values in query.filters.items():
        if name in _COLUMNS:
            lines = lines.where(_line[_COLUMNS[name]].in_(values))
    rows = connection.execute(lines.limit(MOST_LINES + 1)).all()
    if len(rows) > MOST_LINES:
        raise InvalidValue(f"The session has more than {MOST_LINES:,} lines in this range; choose a shorter one")
    rollup = Rollup()
    for line in map(line_of, rows):
        rollup.add(line, facts_of(line.meta_text))
    return _grouped(rollup, query)


def _grouped(rollup: Rollup, query: UsageQuery) -> list[UsageRow]:
    found: dict[tuple[Any, ...], list[Sums]] = {}
    for (hour, *labels), cells in rollup.hours():
        of = dict(zip(_LABELS, labels, strict=True))
        if all(of[name] in values for name, values in query.filters.items()):
            sums = Sums(zip(MEASURES, cells, strict=True))
            sums[ERRORS] = 0 if of["outcome"] in NO_ERRORS else sums["calls"]
            key = (period_start(query, hour), *(of[name] for name in query.dimensions))
            found.setdefault(key, []).append(sums)
    return [UsageRow(key[1:], key[0], _added(found[key])) for key in sorted(found)]


def _added(sums: Sequence[Sums]) -> Sums:
    return reduce(lambda some, other: Sums((name, together(name, some[name], other[name])) for name in some), sums)

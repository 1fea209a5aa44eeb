"""The most expensive groups of a query whose groups are too many for one answer, and the sums of all others.

The database finds the groups: however many there are, only those that are returned are read.
"""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.database.tables import MAXIMA
from gateway.history.usage_sums import Sums, UsageQuery, UsageRow, filter_conditions, label_of, read_usage, segments_of


class Largest(Struct, frozen=True):
    """The most expensive groups, and what the others have together; the maxima in it are those of all groups."""

    rows: list[UsageRow]
    others: Sums


def has_largest(query: UsageQuery) -> bool:
    """Whether `read_largest` takes the query: one by periods has no largest groups, and sums by tag have no rest."""
    return bool(query.dimensions) and query.period is None and not query.by_tag


def read_largest(connection: Connection, query: UsageQuery, most: int) -> Largest:
    """The `most` most expensive groups, the most expensive first."""
    order = {labels: place for place, labels in enumerate(_largest(connection, query, most))}
    values = {name: sorted({labels[at] for labels in order}) for at, name in enumerate(query.dimensions)}
    of_these = structs.replace(query, filters={**query.filters, **values}, most=None)
    found = [row for row in read_usage(connection, of_these) if row.labels in order] if order else []
    totals = read_usage(connection, structs.replace(query, dimensions=()))
    if not totals:
        return Largest([], Sums())
    others = Sums(
        (name, value if name in MAXIMA else value - sum(row.sums.get(name, 0) for row in found))
        for name, value in totals[0].sums.items()
    )
    return Largest(sorted(found, key=lambda row: order[row.labels]), others)


def _largest(connection: Connection, query: UsageQuery, most: int) -> list[tuple[str, ...]]:
    """The labels of these groups."""
    parts = []
    for segment in segments_of(query):
        start = segment.table.primary_key.columns[0]
        labels = [label_of(segment.table, name).label(name) for name in query.dimensions]
        select = sa.select(*labels, sa.func.sum(segment.table.c.cost).label("cost"))
        select = select.where(start >= segment.since, start < segment.until, *filter_conditions(segment.table, query))
        parts.append(select.group_by(*labels))
    if not parts:
        return []
    groups = sa.union_all(*parts).subquery()
    names = [groups.c[name] for name in query.dimensions]
    largest = sa.select(*names).group_by(*names).order_by(sa.func.sum(groups.c.cost).desc(), *names).limit(most)
    return [tuple(row) for row in connection.execute(largest)]

"""Copies a whole database, people included, into an empty one, such as from SQLite to PostgreSQL. Importers wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.people_tables import PEOPLE
from gateway.database.tables import (
    ROLLUPS,
    import_state,
    ledger_lines,
    money_site_hourly,
    refusal_batches,
    refusals_hourly,
    refusals_site_hourly,
    statements,
    superseded_lines,
)
from gateway.errors import DatabaseRefused

PAGE = 2000  # rows per query
TABLES = (
    import_state,
    ledger_lines,
    superseded_lines,
    *ROLLUPS,
    money_site_hourly,
    refusals_hourly,
    refusals_site_hourly,
    refusal_batches,
    statements,
    *PEOPLE,
)


class Copied(Struct):
    """The `gateway history copy` document."""

    accounts: int = 0
    lines: int = 0
    database: str = ""  # id of the new database


def copy_history(source: Database, target: Database) -> Copied:
    """Copy all rows in one transaction; the caller holds the lock of `source`. DatabaseRefused if `target` has rows.

    The ids of superseded lines are given anew. The target keeps its own id.
    """
    with source.reading() as old, target.writing() as new:
        for table in TABLES:
            if new.scalar(sa.select(sa.func.count()).select_from(table)):
                raise DatabaseRefused("The database to copy to has a history already")
        for table in TABLES:
            for rows in _pages(old, table):
                new.execute(table.insert(), [_values(table, row) for row in rows])
            if _count(old, table) != _count(new, table):
                raise DatabaseRefused(f"The copy of {table.name} is not complete")
        return Copied(_count(new, import_state), _count(new, ledger_lines), target.id)


def _pages(connection: Connection, table: sa.Table) -> Iterator[list[Any]]:
    """The rows in the order of the primary key, page by page."""
    key = list(table.primary_key.columns)
    query = sa.select(table).order_by(*key).limit(PAGE)
    last: tuple[Any, ...] | None = None
    while True:
        page = query
        if last is not None:
            page = query.where(sa.tuple_(*key) > sa.tuple_(*map(sa.literal, last)))
        rows = list(connection.execute(page).all())
        if rows:
            yield rows
        if len(rows) < PAGE:
            return
        last = tuple(rows[-1]._mapping[column.name] for column in key)


def _values(table: sa.Table, row: Any) -> dict[str, Any]:
    values = dict(row._mapping)
    if table is superseded_lines:
        del values["id"]
    return values


def _count(connection: Connection, table: sa.Table) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)

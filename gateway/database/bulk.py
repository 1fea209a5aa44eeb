"""Writes many rows at once. Rows are tuples that go to the driver as they are.

SQLAlchemy's own way makes a dict of each row and converts every value: several times what SQLite needs to store a row.
SQLite gets prepared statements. PostgreSQL gets one COPY, or one statement with a JSON document of all rows. Texts of
statements are made once for each table and set of columns. Errors are SQLAlchemy's, as for its own statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from gateway.database.tables import MAXIMA

Row = tuple[Any, ...]


def insert_rows(connection: Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert rows; each has a value for every column, in the table's order."""
    if not rows:
        return
    if _is_sqlite(connection):
        connection.exec_driver_sql(_insert_text(table), rows)
    else:
        _copy(connection, table, rows)


def update_rows(
    connection: Connection, table: sa.Table, changed: tuple[str, ...], same: tuple[str, ...], rows: Sequence[Row]
) -> int:
    """Set the columns `changed` where the columns `same` have the given values; returns the number of changed rows.

    A row has the new values, and then those to compare with.
    """
    if not rows:
        return 0
    text = _update_text(table, changed, same, "?" if _is_sqlite(connection) else "%s")
    return connection.exec_driver_sql(text, rows).rowcount


def add_rows(
    connection: Connection, table: sa.Table, labels: tuple[str, ...], sums: tuple[str, ...], rows: Sequence[Row]
) -> None:
    """Insert rows, or add their `sums` to the rows that have the same primary key; of maxima the larger one stays.

    A row has the values of `labels`, and then those of `sums`. All other columns are numbers: 0 in a new row, else
    unchanged. No two rows have the same primary key.
    """
    if not rows:
        return
    if _is_sqlite(connection):
        connection.exec_driver_sql(_add_text(table, labels, sums), rows)
        return
    names = (*labels, *sums)
    document = msgspec.json.encode([dict(zip(names, row, strict=True)) for row in rows]).decode()
    connection.exec_driver_sql(_add_document_text(table, labels, sums, connection.dialect), (document,))


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


def _copy(connection: Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """COPY by psycopg. SQLAlchemy does not know of it, so its errors are translated here."""
    dialect: Any = connection.dialect
    text = f"COPY {table.name} ({_listed(table.columns.keys())}) FROM STDIN"
    cursor: Any = connection.connection.cursor()
    try:
        with cursor.copy(text) as copy:
            for row in rows:
                copy.write_row(row)
    except dialect.dbapi.Error as error:
        raise sa.exc.DBAPIError.instance(text, None, error, dialect.dbapi.Error, dialect=dialect) from None
    finally:
        cursor.close()


@lru_cache(maxsize=64)
def _insert_text(table: sa.Table) -> str:
    names = tuple(table.columns.keys())
    return f"{_into(table, names)} VALUES ({', '.join('?' * len(names))})"


@lru_cache(maxsize=64)
def _update_text(table: sa.Table, changed: tuple[str, ...], same: tuple[str, ...], mark: str) -> str:
    values, known = (tuple(f'"{name}" = {mark}' for name in names) for names in (changed, same))
    return " ".join(("UPDATE", table.name, "SET", ", ".join(values), "WHERE", " AND ".join(known)))


@lru_cache(maxsize=256)
def _add_text(table: sa.Table, labels: tuple[str, ...], sums: tuple[str, ...]) -> str:
    names = (*labels, *sums)
    rest = _rest(table, names)
    values = ["?"] * len(names) + ["0"] * len(rest)
    return f"{_into(table, names + rest)} VALUES ({', '.join(values)}) {_on_conflict(table, sums, 'max')}"


@lru_cache(maxsize=256)
def _add_document_text(table: sa.Table, labels: tuple[str, ...], sums: tuple[str, ...], dialect: Dialect) -> str:
    names = (*labels, *sums)
    rest = _rest(table, names)
    types = ", ".join(f'"{name}" {table.c[name].type.compile(dialect)}' for name in names)
    values = f"SELECT {', '.join([_listed(names), *('0' for _ in rest)])}"
    source = f"FROM json_to_recordset(%s::json) AS r({types})"
    return f"{_into(table, names + rest)} {values} {source} {_on_conflict(table, sums, 'greatest')}"


def _into(table: sa.Table, names: tuple[str, ...]) -> str:
    return f"INSERT INTO {table.name} ({_listed(names)})"


def _rest(table: sa.Table, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.name not in names)


def _on_conflict(table: sa.Table, sums: tuple[str, ...], larger: str) -> str:
    """`larger` is the dialect's function of the larger of two values."""
    changes = ", ".join(
        f'"{name}" = {larger}({table.name}."{name}", excluded."{name}")'
        if name in MAXIMA
        else f'"{name}" = {table.name}."{name}" + excluded."{name}"'
        for name in sums
    )
    return f"ON CONFLICT ({_listed(table.primary_key.columns.keys())}) DO UPDATE SET {changes}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)

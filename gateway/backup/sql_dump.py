"""Copies a database into the folder of a backup: an SQLite file by its online backup, PostgreSQL table by table."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.backup.manifest import DATABASE_FILE, TABLES, DatabaseNote
from gateway.database import migrate
from gateway.database.engine import Database
from gateway.database.people_tables import metadata

TOGETHER = 2000  # rows

_encoder = msgspec.json.Encoder()


def dump_database(database: Database, folder: Path) -> DatabaseNote:
    """Write the database at one moment; it may be used meanwhile."""
    if database.address.file is not None:
        return _copy_file(database, folder / DATABASE_FILE)
    tables = folder / TABLES
    tables.mkdir(mode=0o700)
    with database.reading() as connection:
        rows = {str(table.name): _write_table(connection, table, tables) for table in metadata.sorted_tables}
        return DatabaseNote("postgresql", database.id, migrate.revision_of(connection), rows)


def _copy_file(database: Database, target: Path) -> DatabaseNote:
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(str(database.address.file))) as old, closing(sqlite3.connect(str(target))) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    engine = sa.create_engine(f"sqlite:///file:{target}?mode=ro&immutable=1&uri=true")
    try:
        with engine.connect() as connection:
            rows = {str(table.name): _count(connection, table) for table in metadata.sorted_tables}
            return DatabaseNote("sqlite", database.id, migrate.revision_of(connection), rows)
    finally:
        engine.dispose()


def _write_table(connection: Connection, table: sa.Table, folder: Path) -> int:
    """JSON lines: the names of the columns, then the rows; binary values in base64."""
    descriptor = os.open(folder / f"{table.name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    count = 0
    with os.fdopen(descriptor, "wb") as file:
        file.write(_encoder.encode([str(column.name) for column in table.columns]) + b"\n")
        for rows in _pages(connection, table):
            file.write(_encoder.encode_lines([list(row) for row in rows]))
            count += len(rows)
        file.flush()
        os.fsync(descriptor)
    return count


def _pages(connection: Connection, table: sa.Table) -> Iterator[Any]:
    options = {"stream_results": True, "yield_per": TOGETHER}
    return connection.execute(sa.select(table), execution_options=options).partitions()


def _count(connection: Connection, table: sa.Table) -> int:
    return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)

"""Puts the database of a backup in place: the SQLite file, or the rows of each table in one transaction."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.backup.errors import BackupError
from gateway.backup.files import copy_file, sync_folder
from gateway.backup.manifest import DATABASE_FILE, TABLES, DatabaseNote
from gateway.database import migrate
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.people_tables import metadata
from gateway.database.tables import meta

TOGETHER = 2000  # rows
LOGS = ("-wal", "-shm")  # beside an SQLite file


def check_kind(address: DatabaseAddress, note: DatabaseNote) -> None:
    """BackupError unless the database of the backup can be put at this address."""
    kind = "sqlite" if address.file is not None else "postgresql"
    if note.kind != kind:
        advice = (
            "restore it without database.url, then run `gateway history copy`"
            if note.kind == "sqlite"
            else "set database.url to a PostgreSQL database"
        )
        raise BackupError(f"the database of the backup is {note.kind}, the configured one is {kind}: {advice}")
    if not migrate.is_known(note.revision):
        raise BackupError(f"the database of the backup (version {note.revision}) is newer than this program")


def has_rows(address: DatabaseAddress) -> bool:
    """Whether there is a database with any row beside its own id. It is not upgraded: an older one counts as full."""
    version = Database.version_at(address) if address.exists else "none"
    if version != "current":
        return version == "older"
    database = Database.open(address, migrate_tables=False)
    try:
        with database.reading() as connection:
            tables = (table for table in metadata.sorted_tables if table is not meta)
            return any(
                connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() for table in tables
            )
    finally:
        database.close()


def load_database(address: DatabaseAddress, note: DatabaseNote, folder: Path) -> None:
    """Replace the database by the one of the backup, and bring its tables up to date."""
    if address.file is not None:
        _place_file(address.file, folder / DATABASE_FILE)
        Database.open(address).close()
        return
    Database.open(address).close()  # the tables exist from here on, so they can be dropped
    database = Database.open(address)
    try:
        with database.writing() as connection:
            metadata.drop_all(connection)
            connection.execute(sa.text("DROP TABLE alembic_version"))
            migrate.upgrade_to(connection, note.revision)
            for name, rows in note.rows.items():
                _fill(connection, name, folder / TABLES / f"{name}.jsonl", rows)
            migrate.upgrade(connection)
    finally:
        database.close()


def _place_file(target: Path, source: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.restored")
    draft.unlink(missing_ok=True)
    copy_file(source, draft)
    with closing(sqlite3.connect(str(draft))) as connection:
        found = connection.execute("PRAGMA quick_check").fetchone()[0]
    if found != "ok":
        draft.unlink()
        raise BackupError(f"{source} is damaged: {found}")
    for end in LOGS:  # a log of the file before must never be applied to this one
        target.with_name(target.name + end).unlink(missing_ok=True)
    draft.replace(target)
    with suppress(OSError):
        sync_folder(target.parent)


def _fill(connection: Connection, name: str, path: Path, expected: int) -> None:
    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
    connection.execute(table.delete())
    count = 0
    with path.open("rb") as file:
        columns = [table.c[column] for column in msgspec.json.decode(file.readline())]
        binary = [isinstance(column.type, sa.LargeBinary) for column in columns]
        for lines in _batches(file):
            rows = [_row(columns, binary, msgspec.json.decode(line)) for line in lines]
            connection.execute(table.insert(), rows)
            count += len(rows)
    if count != expected:
        raise BackupError(f"{path} has {count} rows instead of {expected}")
    _continue_numbers(connection, table)


def _batches(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    while batch := list(islice(lines, TOGETHER)):
        yield batch


def _row(columns: list[sa.Column[Any]], binary: list[bool], values: list[Any]) -> dict[str, Any]:
    return {
        column.name: base64.b64decode(value) if is_binary and value is not None else value
        for column, is_binary, value in zip(columns, binary, values, strict=True)
    }


def _continue_numbers(connection: Connection, table: sa.Table) -> None:
    """Let a column that numbers its rows go on after the last row."""
    for column in table.primary_key.columns:
        if column.server_default is not None and "nextval" in str(column.server_default.arg):  # type: ignore[attr-defined]
            last = sa.select(sa.func.coalesce(sa.func.max(column), 1)).scalar_subquery()
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(sa.select(sa.func.setval(sequence, last)))

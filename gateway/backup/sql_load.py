"""Puts the database of a backup in place: the SQLite file, or the rows of each table in one transaction."""

from __future__ import annotations

import base64
import hashlib
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.backup import BackupError
from gateway.backup.files import copy_file
from gateway.backup.manifest import DATABASE_FILE, TABLES, DatabaseNote
from gateway.database import migrate
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.people_tables import metadata
from gateway.database.tables import meta
from gateway.ledger.gather_all import batches

TOGETHER = 2000  # rows
RESTORED = "restored"  # the key in `meta`: which restore wrote the tables


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
    """Whether there is a database with any row beside its own id.

    It is not upgraded: an older one counts as full, and so does a newer one.
    """
    if address.exists and Database.is_newer_at(address):
        return True
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


def load_file(target: Path, note: DatabaseNote, folder: Path) -> None:
    """Make an SQLite file with the rows of the backup and tables of this version; there is none at `target` yet."""
    source = folder / DATABASE_FILE
    copy_file(source, target)
    with closing(sqlite3.connect(str(target))) as connection:
        found = connection.execute("PRAGMA quick_check").fetchone()[0]
        counts = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in note.rows}  # noqa: S608 - names of tables
    if found != "ok":
        raise BackupError(f"{source} is damaged: {found}")
    for name, expected in note.rows.items():
        if counts[name] != expected:
            raise BackupError(f"{source} has {counts[name]} rows of {name} instead of {expected}")
    with closing(Database.open(DatabaseAddress(file=target))) as database:
        database.make_durable()


def replace_tables(
    address: DatabaseAddress, note: DatabaseNote, folder: Path, *, restore_id: str, check: Callable[[], None]
) -> None:
    """Replace the tables of a PostgreSQL database by those of the backup, in one transaction.

    `restore_id` is in `meta` afterwards. `check` is called after some rows each, and undoes everything if it raises.
    """
    is_newer = Database.is_newer_at(address)
    with Database.transaction_at(address) as connection:
        found = sa.MetaData()
        ours = {"alembic_version", *metadata.tables}
        found.reflect(connection, only=lambda name, _: is_newer or name in ours)
        found.drop_all(connection)
        write_tables(connection, note, folder, check)
        connection.execute(meta.delete().where(meta.c.key == RESTORED))
        connection.execute(meta.insert().values(key=RESTORED, value=restore_id))


def is_replaced(address: DatabaseAddress, restore_id: str) -> bool:
    """Whether `replace_tables` of that restore was committed; DatabaseUnavailable."""
    with Database.transaction_at(address) as connection:
        if not sa.inspect(connection).has_table(meta.name):
            return False
        return connection.scalar(sa.select(meta.c.value).where(meta.c.key == RESTORED)) == restore_id


def write_tables(connection: Connection, note: DatabaseNote, folder: Path, check: Callable[[], None]) -> None:
    """Create the tables, write the rows of the backup, and bring the tables up to date."""
    migrate.upgrade_to(connection, note.revision)
    for name, rows in note.rows.items():
        _fill(connection, name, folder / TABLES / f"{name}.jsonl", rows, check)
    migrate.upgrade(connection)


def verify_tables(address: DatabaseAddress, note: DatabaseNote, folder: Path, check: Callable[[], None]) -> None:
    """Write the tables of the backup into a schema of their own, compare them with the backup, and undo everything."""
    with Database.transaction_at(address) as connection:
        schema = f"gateway_verify_{secrets.token_hex(8)}"
        try:
            connection.execute(sa.text(f"CREATE SCHEMA {schema}"))
        except sa.exc.ProgrammingError as error:
            raise BackupError(f"a verification needs a schema in the database: {error.orig}") from None
        connection.execute(sa.text(f"SET LOCAL search_path TO {schema}"))
        migrate.upgrade_to(connection, note.revision)
        for name, rows in note.rows.items():
            path = folder / TABLES / f"{name}.jsonl"
            _fill(connection, name, path, rows, check)
            if _digest_of_rows(connection, name, path) != _digest_of_lines(path):
                raise BackupError(f"rows of {name} are not restored as they are in the backup")
        migrate.upgrade(connection)
        connection.rollback()


def _digest_of_rows(connection: Connection, name: str, path: Path) -> int:
    """A sum over the rows in the database, in any order."""
    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
    with path.open("rb") as file:
        columns = [table.c[column] for column in msgspec.json.decode(file.readline())]
    pages = connection.execute(sa.select(*columns), execution_options={"stream_results": True, "yield_per": TOGETHER})
    return sum(_digest(msgspec.to_builtins(list(row))) for rows in pages.partitions() for row in rows) % 2**256


def _digest_of_lines(path: Path) -> int:
    """The same sum over the rows of the file."""
    with path.open("rb") as file:
        file.readline()
        return sum(_digest(msgspec.json.decode(line)) for line in file) % 2**256


def _digest(row: object) -> int:
    return int.from_bytes(hashlib.sha256(msgspec.json.encode(row)).digest(), "big")


def _fill(connection: Connection, name: str, path: Path, expected: int, check: Callable[[], None]) -> None:
    table = sa.Table(name, sa.MetaData(), autoload_with=connection)
    connection.execute(table.delete())
    count = 0
    with path.open("rb") as file:
        columns = [table.c[column] for column in msgspec.json.decode(file.readline())]
        binary = [isinstance(column.type, sa.LargeBinary) for column in columns]
        for lines in batches(file, TOGETHER):
            check()
            rows = [_row(columns, binary, msgspec.json.decode(line)) for line in lines]
            connection.execute(table.insert(), rows)
            count += len(rows)
    if count != expected:
        raise BackupError(f"{path} has {count} rows instead of {expected}")
    _continue_numbers(connection, table)


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

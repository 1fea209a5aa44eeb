"""The migrations run once in each process of the tests: a further empty database gets their result.

That is the same file for SQLite. For PostgreSQL it is a copy of a database (`copied_database`), or the same statements
in a database that is there already, which takes more than twice as long. Hundreds of tests open a new database, and
Alembic spends most of a migration on reading its scripts and on looking at tables. A database that already has tables
is migrated by Alembic as always, and so are those of other processes.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from gateway.database import engine as engines
from gateway.database.address import DatabaseAddress, postgres_address
from gateway.database.engine import Database
from gateway.database.lock import held, lock_of
from gateway.database.migrate import ID
from gateway.database.tables import meta
from tests.postgres import PostgresServer

Upgrade = Callable[[Config, str], None]
Statements = list[tuple[str, Any]]


def filled_once(upgrade: Upgrade) -> Callable[[Engine, DatabaseAddress], None]:
    """A replacement of `gateway.database.engine._migrate`; a test that replaces `upgrade` has its own migrations."""
    migrate, migrated = engines._migrate, list[sqlite3.Connection]()
    one_at_a_time = threading.Lock()  # Alembic migrates one database of a process at a time

    def fill(engine: Engine, address: DatabaseAddress) -> None:
        if address.file is None or command.upgrade is not upgrade:
            migrate(engine, address)
            return
        with one_at_a_time:
            if not migrated:
                migrated.append(_migrated(migrate))
        with held(lock_of(engine, address.file, "migration"), within=engines.MIGRATE_WITHIN):
            _fill(address.file, migrated[0])
        migrate(engine, address)

    return fill


def copied_database(server: PostgresServer) -> DatabaseAddress:
    """A new database with the tables and an id of its own."""
    address = postgres_address(server.copied_database(lambda url: Database.open(postgres_address(url)).close()))
    with Database.transaction_at(address) as connection:
        connection.execute(meta.update().where(meta.c.key == ID).values(value="db_" + secrets.token_hex(16)))
    return address


def _migrated(migrate: Callable[[Engine, DatabaseAddress], None]) -> sqlite3.Connection:
    """A new database in memory, migrated."""
    content = sqlite3.connect(":memory:", check_same_thread=False)
    with TemporaryDirectory() as folder:
        file = Path(folder, "gateway.db")
        address = DatabaseAddress(file=file)
        engine = engines._sqlite_engine(address)
        migrate(engine, address)
        engine.dispose()
        with closing(sqlite3.connect(file)) as connection:
            connection.backup(content)
    return content


def _fill(file: Path, migrated: sqlite3.Connection) -> None:
    """Let the database have the content of a migrated one and an id of its own, if it is empty.

    Another process may open it at the same time, and writes the first page to it then. So the content passes SQLite's
    locks, not a write to the file. The migration says what is wrong with a file that is no database.
    """
    try:
        with closing(sqlite3.connect(file, timeout=60)) as connection:
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                connection.execute("PRAGMA synchronous = OFF")
                migrated.backup(connection)
                connection.execute("UPDATE meta SET value = ? WHERE key = ?", ("db_" + secrets.token_hex(16), ID))
                connection.commit()
    except sqlite3.DatabaseError:
        if file.is_file() and file.read_bytes().startswith(b"SQLite format 3"):
            raise


def migrated_once(upgrade: Upgrade = command.upgrade) -> Upgrade:
    """A replacement of `alembic.command.upgrade`."""
    recorded: dict[str, Statements] = {}

    def upgrade_once(config: Config, revision: str) -> None:
        connection: Connection = config.attributes["connection"]
        if revision != "head" or not _is_empty(connection):
            upgrade(config, revision)
        elif (statements := recorded.get(connection.dialect.name)) is not None:
            for statement, parameters in statements:
                connection.exec_driver_sql(statement, parameters or None)
        else:
            with _recorded(connection) as statements:
                upgrade(config, revision)
            recorded[connection.dialect.name] = statements

    return upgrade_once


def _is_empty(connection: Connection) -> bool:
    return MigrationContext.configure(connection).get_current_revision() is None and not sa.inspect(
        connection
    ).has_table("meta")


@contextmanager
def _recorded(connection: Connection) -> Iterator[Statements]:
    """The statements of the block that change something."""
    statements: Statements = []

    def note(_: Connection, cursor: object, statement: str, parameters: Any, *rest: object) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            statements.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(connection, "before_cursor_execute", note)

"""The migrations run once in each process of the tests; each further empty database gets the same statements.

Alembic spends most of a migration on reading its scripts and on looking at tables, and hundreds of tests open a new
database. A database that already has tables is migrated by Alembic as always, and so are those of other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event
from sqlalchemy.engine import Connection

Statements = list[tuple[str, Any]]


def migrated_once(upgrade: Callable[[Config, str], None] = command.upgrade) -> Callable[[Config, str], None]:
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

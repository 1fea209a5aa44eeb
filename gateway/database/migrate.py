"""Brings the tables of a database to this program's version, under a lock; refuses a database that is newer."""

from __future__ import annotations

import logging
import secrets
from functools import cache
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from gateway.database.tables import meta
from gateway.errors import DatabaseRefused
from gateway.log import gateway_log

FOLDER = Path(__file__).parent / "migrations"
ID = "id"

TablesVersion = Literal["none", "older", "current"]

logging.getLogger("alembic").setLevel(logging.WARNING)  # it says each step at info


def version_of(connection: Connection) -> TablesVersion:
    """Which tables the database has. DatabaseRefused if they are newer than this program."""
    found = MigrationContext.configure(connection).get_current_revision()
    newest, *_ = revisions = _revisions()
    if found is not None and found not in revisions:
        raise DatabaseRefused(
            "The database is newer than this program",
            detail=f"its tables have version {found}, this program knows up to {newest}",
        )
    if found is None:
        return "none"
    return "current" if found == newest else "older"


def revision_of(connection: Connection) -> str:
    """The version of the tables; empty if there are none."""
    return MigrationContext.configure(connection).get_current_revision() or ""


def is_known(revision: str) -> bool:
    """Whether this program knows tables of that version."""
    return revision in _revisions()


@cache
def _revisions() -> tuple[str, ...]:
    """All versions that this program has, the newest first; Alembic runs each script to read its number."""
    return tuple(script.revision for script in ScriptDirectory(str(FOLDER)).walk_revisions())


def upgrade_to(connection: Connection, revision: str) -> None:
    """Run the migrations up to that version in the connection's transaction."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the connection's transaction, and give a new database its id."""
    if version_of(connection) == "current":
        return
    upgrade_to(connection, "head")
    gateway_log.info("the tables of the database have version %s now", _revisions()[0])
    if connection.scalar(sa.select(meta.c.value).where(meta.c.key == ID)) is None:
        connection.execute(meta.insert().values(key=ID, value="db_" + secrets.token_hex(16)))

"""Brings the tables of a database to this program's version, under a lock; refuses a database that is newer.

Alembic is loaded for a migration alone: with its templates it takes 0.15 s, and each command on the database asks for
the version.
"""

from __future__ import annotations

import logging
import secrets
from functools import cache
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.database.tables import meta
from gateway.errors import DatabaseRefused
from gateway.log import gateway_log

FOLDER = Path(__file__).parent / "migrations"
ID = "id"

VERSION_TABLE = "alembic_version"

_VERSION = sa.select(sa.column("version_num", sa.String)).select_from(sa.table(VERSION_TABLE))

TablesVersion = Literal["none", "older", "current"]

logging.getLogger("alembic").setLevel(logging.WARNING)  # it says each step at info


def version_of(connection: Connection) -> TablesVersion:
    """Which tables the database has. DatabaseRefused if they are newer than this program."""
    found = revision_of(connection)
    newest, *_ = revisions = revisions_known()
    if found and found not in revisions:
        raise DatabaseRefused(
            "The database is newer than this program",
            detail=f"its tables have version {found}, this program knows up to {newest}",
        )
    if not found:
        return "none"
    return "current" if found == newest else "older"


def revision_of(connection: Connection) -> str:
    """The version of the tables; empty if there are none."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return ""
    return connection.scalar(_VERSION) or ""


def require_newest(connection: Connection) -> None:
    """DatabaseRefused if another program has upgraded the tables since they were opened.

    What this program writes could lack what the newer one relies on.
    """
    found = connection.scalar(_VERSION)
    if found not in revisions_known():
        raise DatabaseRefused("The database is newer than this program", detail=f"its tables have version {found}")


def is_known(revision: str) -> bool:
    """Whether this program knows tables of that version."""
    return revision in revisions_known()


@cache
def revisions_known() -> tuple[str, ...]:
    """All versions that this program has, the newest first: the numbers in the names of the scripts."""
    names = (path.stem for path in (FOLDER / "versions").glob("r*_*.py"))
    return tuple(sorted((name[1:].partition("_")[0] for name in names), reverse=True))


def upgrade_to(connection: Connection, revision: str) -> None:
    """Run the migrations up to that version in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def upgrade(connection: Connection) -> None:
    """Run the missing migrations in the connection's transaction, and give a new database its id."""
    if version_of(connection) == "current":
        return
    upgrade_to(connection, "head")
    gateway_log.info("the tables of the database have version %s now", revisions_known()[0])
    if connection.scalar(sa.select(meta.c.value).where(meta.c.key == ID)) is None:
        connection.execute(meta.insert().values(key=ID, value="db_" + secrets.token_hex(16)))

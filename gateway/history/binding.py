"""The store remembers which database has its history; another one does not import.

The store has the database's id in `history:database`, and the database remembers that a store has taken it. So an
emptied store, or another one, is noticed, too: it does not know the database, but the database was taken before.
"""

from __future__ import annotations

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import meta
from gateway.errors import DatabaseRefused
from gateway.history.sql_thread import SqlThread
from gateway.ledger.import_hints import DATABASE
from gateway.store.links import Links

BOUND = "bound"  # the key in `meta`


async def remembered(links: Links) -> str:
    """The id of the database that the store knows; empty for none."""
    found = await links.link(DATABASE).call("GET", DATABASE)
    return found.decode() if found is not None else ""


async def bind(links: Links, database: Database, sql: SqlThread) -> None:
    """Let a new store take a new database; DatabaseRefused if they do not belong together."""
    known = await remembered(links)
    if not known:
        if await sql.run(is_bound, database):
            raise DatabaseRefused(
                "The database has the history of a store, but the store does not know it",
                detail="the store was emptied, or it is another one; `gateway history attach` joins them",
            )
        await links.link(DATABASE).call("SET", DATABASE, database.id, "NX")
        known = await remembered(links)
    check(known, database)
    await sql.run(note_bound, database)


def check(known: str, database: Database) -> None:
    """DatabaseRefused if `known`, the id in the store, is that of another database."""
    if known != database.id:
        raise DatabaseRefused(
            "The store's history is in another database",
            detail=f"the store knows {known}, this is {database.id}; set database.url to the other one,"
            " or continue in this one with `gateway history attach`",
        )


async def belong(links: Links, database: Database, sql: SqlThread) -> bool:
    """Whether the store has its history in this database; False if no importer has run yet. DatabaseRefused."""
    known = await remembered(links)
    if not known and not await sql.run(is_bound, database):
        return False
    if not known:
        raise DatabaseRefused("The database has the history of a store, but the store does not know it")
    check(known, database)
    return True


async def attach(links: Links, database: Database, sql: SqlThread) -> str:
    """Make the store take this database, whatever it knew before; returns the id that it knew."""
    known = await remembered(links)
    await links.link(DATABASE).call("SET", DATABASE, database.id)
    await sql.run(note_bound, database)
    return known


def is_bound(database: Database) -> bool:
    """Whether a store has taken the database."""
    with database.reading() as connection:
        return connection.scalar(sa.select(meta.c.value).where(meta.c.key == BOUND)) is not None


def note_bound(database: Database) -> None:
    """Remember that a store has taken the database."""
    if not is_bound(database):
        with database.writing() as connection:
            insert = database.insert(meta).values(key=BOUND, value="1")
            connection.execute(insert.on_conflict_do_nothing())

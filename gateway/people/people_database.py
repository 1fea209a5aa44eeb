"""Opens the database that holds people: the one in which the store has its history."""

from __future__ import annotations

from gateway.config.secret import SecretError
from gateway.config.settings import Settings
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.errors import DatabaseRefused
from gateway.history import binding
from gateway.history.sql_thread import SqlThread
from gateway.store.links import Links


async def open_people_database(settings: Settings, links: Links, sql: SqlThread) -> Database:
    """The database of the settings, with its tables up to date.

    DatabaseUnavailable; DatabaseRefused if the store's history is in another database: people belong into that one.
    """
    try:
        address = address_of(settings)
    except SecretError as error:
        raise DatabaseRefused("The address of the database cannot be read", detail=str(error)) from None
    database = await sql.run(Database.open, address)
    try:
        if known := await binding.remembered(links):
            binding.check(known, database)
    except BaseException:
        await sql.run(database.close)
        raise
    return database

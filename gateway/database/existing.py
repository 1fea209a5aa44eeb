"""Opens the database if there is one: commands and checks do not make its tables. It loads SQLAlchemy when it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.config.settings import Settings
from gateway.database.address import address_of

if TYPE_CHECKING:
    from gateway.database.engine import Database


@contextmanager
def history_database(settings: Settings) -> Iterator[Database | None]:
    """The database of these settings, closed at the end; None if no importer has made its tables yet.

    DatabaseUnavailable or DatabaseRefused if it cannot be used.
    """
    address = address_of(settings)
    if not address.exists:
        yield None
        return
    from gateway.database.engine import Database

    if Database.version_at(address) == "none":
        yield None
        return
    database = Database.open(address, migrate_tables=False)
    try:
        yield database
    finally:
        database.close()

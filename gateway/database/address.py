"""Where the database is: a PostgreSQL address, or an SQLite file. SQLAlchemy is not needed to know it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from gateway.config.settings import Settings
from gateway.errors import DatabaseRefused

FILE = "gateway.db"
SCHEMES = ("postgresql", "postgres")


class DatabaseAddress(Struct, frozen=True):
    """An SQLite file, or a PostgreSQL URL with its password."""

    url: str = ""
    file: Path | None = None

    def __repr__(self) -> str:
        return str(self.file) if self.file is not None else "PostgreSQL"

    @property
    def exists(self) -> bool:
        """Whether there is something to open; a PostgreSQL server is taken to be there."""
        return self.file is None or self.file.exists()


def address_of(settings: Settings) -> DatabaseAddress:
    """The database of these settings. SecretError if its reference leads nowhere, DatabaseRefused if it is no URL."""
    secret = settings.database_url
    if secret is None:
        return DatabaseAddress(file=settings.data_dir / FILE)
    return postgres_address(secret.reveal())


def postgres_address(url: str) -> DatabaseAddress:
    """The address in a PostgreSQL URL; DatabaseRefused for any other URL, without its text."""
    scheme, found, rest = url.partition("://")
    if not found or scheme not in SCHEMES or not rest:
        raise DatabaseRefused("The database's address is not a postgresql:// URL")
    return DatabaseAddress(url=f"postgresql+psycopg://{rest}")

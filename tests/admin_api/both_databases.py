"""Lets the tests of a module run on SQLite and on PostgreSQL.

The module imports `database_address`, `database_url` and `postgres`.
"""

from __future__ import annotations

import pytest

from gateway.database.address import DatabaseAddress
from tests.databases import database_address, postgres

__all__ = ["database_address", "database_url", "postgres"]


@pytest.fixture
def database_url(database_address: DatabaseAddress) -> str:
    """The setting `database.url` of an empty database."""
    return database_address.url.replace("postgresql+psycopg://", "postgresql://")

"""Lets the tests of a module run on SQLite and on PostgreSQL.

The module imports `database_address` and `database_url`.
"""

from __future__ import annotations

import pytest

from gateway.database.address import DatabaseAddress
from tests.databases import database_address

__all__ = ["database_address", "database_url"]


@pytest.fixture
def database_url(database_address: DatabaseAddress) -> str:
    """The setting `database.url` of an empty database."""
    return database_address.url.replace("postgresql+psycopg://", "postgresql://")

"""The fixtures of tests that run on SQLite and on PostgreSQL alike.

A test module imports `database_address` and `database`. The server is that of tests/conftest.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.database.address import DatabaseAddress, postgres_address
from gateway.database.engine import Database

KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))


@pytest.fixture(params=KINDS)
def database_address(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseAddress:
    """The address of an empty database."""
    if request.param == "sqlite":
        return DatabaseAddress(file=tmp_path / "gateway.db")
    return postgres_address(request.getfixturevalue("postgres_database")())


@pytest.fixture
def database(database_address: DatabaseAddress) -> Iterator[Database]:
    """An empty database with its tables."""
    database = Database.open(database_address)
    yield database
    database.close()

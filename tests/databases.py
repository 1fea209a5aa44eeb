"""The fixtures of tests that run on SQLite and on PostgreSQL alike.

A test module imports `database_address` and `database`. The server is that of tests/conftest.py. A PostgreSQL database
has its tables already: it is a copy of one that was migrated once in each process, which takes less than half of the
time. That of `empty_database_address` has none.
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
    """The address of a new database that nobody has opened."""
    if request.param == "sqlite":
        return DatabaseAddress(file=tmp_path / "gateway.db")
    return request.getfixturevalue("migrated_database")()


@pytest.fixture(params=KINDS)
def empty_database_address(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseAddress:
    """The address of a database without tables."""
    if request.param == "sqlite":
        return DatabaseAddress(file=tmp_path / "gateway.db")
    return postgres_address(request.getfixturevalue("postgres_database")())


@pytest.fixture
def database(database_address: DatabaseAddress) -> Iterator[Database]:
    """A new database with its tables."""
    database = Database.open(database_address)
    yield database
    database.close()

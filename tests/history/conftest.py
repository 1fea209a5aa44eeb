"""What the tests of the history share: a store, a database of each kind, and an importer between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.metrics import Metrics
from tests.databases import database, database_address
from tests.history.importing import Importing

__all__ = ["database", "database_address"]


@pytest.fixture
def sql() -> Iterator[SqlThread]:
    """The thread of the database calls."""
    thread = SqlThread()
    yield thread
    thread.close()


@pytest.fixture
def importing(database: Database, sql: SqlThread) -> Callable[..., Importing]:
    """Makes an importer of a world's store into the database."""
    return lambda world, **rest: Importing(world, rest.pop("database", database), sql, Metrics(), **rest)

"""SQLAlchemy compiles each statement once in each process of the tests, not once for each database.

A statement that was compiled is kept by the engine, by its dialect and the form of the statement. Hundreds of tests
open a new database, and would spend a fifth of its transactions on compiling the same statements. Engines of one kind
of database share the dialect here, and what was compiled for it. Values are no part of either.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.util import LRUCache

from gateway.database.address import DatabaseAddress

MOST = 10_000  # statements; an engine keeps 500


def compiled_once(make: Callable[[DatabaseAddress], Engine]) -> Callable[[DatabaseAddress], Engine]:
    """A replacement of `gateway.database.engine._engine`."""
    shared: dict[str, tuple[Dialect, MutableMapping[Any, Any]]] = {}

    def made(address: DatabaseAddress) -> Engine:
        engine = make(address)
        name, own = engine.dialect.name, (engine.dialect, LRUCache[Any, Any](MOST))
        dialect, compiled = shared.get(name, own)
        engine.dialect = engine.pool._dialect = dialect
        engine._compiled_cache = compiled
        if dialect is own[0]:  # it has learned the version of the server once a connection is made
            event.listen(engine, "connect", lambda *_: shared.setdefault(name, own))
        return engine

    return made

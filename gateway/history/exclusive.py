"""The lock of the importer, for a command that changes the history itself: importers wait meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.database.engine import Database
from gateway.database.lock import held

WITHIN = 60.0  # seconds; an importer releases the lock after each round


@contextmanager
def importers_waiting(database: Database) -> Iterator[None]:
    """No importer writes in the block. DatabaseUnavailable if another command keeps the lock for `WITHIN` seconds."""
    with held(database.lock("importer"), within=WITHIN):
        yield

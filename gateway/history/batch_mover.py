"""Moves batches of a stream in the store, which workers append, to the database."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.log import gateway_log
from gateway.store.links import Links

B = TypeVar("B")


class BatchMover(Generic[B]):
    """Moves batches of one kind; the caller holds the importer's lock.

    `read` gives the oldest batches with their ids, None for one that cannot be read. `add` blocks, and a batch that it
    gets again changes nothing. `remove` removes batches by their ids. `every`: seconds; `page`: batches in one
    transaction; `name` is for the log.
    """

    def __init__(
        self,
        links: Links,
        database: Database,
        sql: SqlThread,
        *,
        name: str,
        every: float,
        page: int,
        read: Callable[[Links, int], Awaitable[list[tuple[str, B | None]]]],
        add: Callable[[Database, list[B]], Any],
        remove: Callable[[Links, list[str]], Awaitable[None]],
    ) -> None:
        self._links = links
        self._database = database
        self._sql = sql
        self._name = name
        self._every = every
        self._page = page
        self._read = read
        self._add = add
        self._remove = remove
        self._due = 0.0  # monotonic

    async def move_due(self) -> None:
        """Move what waits, at most once in `every` seconds."""
        if time.monotonic() >= self._due:
            await self.move()
            self._due = time.monotonic() + self._every

    async def move(self) -> None:
        """Move what waits."""
        while entries := await self._read(self._links, self._page):
            for entry, batch in entries:
                if batch is None:
                    gateway_log.error("%s %s in the store cannot be read; they are left out", self._name, entry)
            await self._sql.run(self._add, self._database, [batch for _, batch in entries if batch is not None])
            await self._remove(self._links, [entry for entry, _ in entries])

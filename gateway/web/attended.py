"""Work for a client that is still there: it ends when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

CLIENT_CLOSED = "client_closed"  # in the access log, as for `/v1`


class ClientLeft(Exception):
    """Nobody waits for the answer any more."""


class AttendedWork:
    """The work of one request. `on_connection_close` of its handler calls `client_left`."""

    def __init__(self) -> None:
        self._has_left = False
        self._work: asyncio.Future[Any] | None = None

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`; ClientLeft if the client has left before its end. An error of `work` is raised."""
        if self._has_left:
            raise ClientLeft
        task: asyncio.Future[T] = asyncio.ensure_future(work())
        self._work = task
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()  # if this task is cancelled itself
        if task.cancelled():
            raise ClientLeft
        return task.result()

    def client_left(self) -> None:
        """End the work, and let none begin."""
        self._has_left = True
        if self._work is not None:
            self._work.cancel()

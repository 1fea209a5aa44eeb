"""The import that runs in this process: one at a time, so that two plans do not make the same thing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.console.replies import Reply
from gateway.errors import Conflict

Import = tuple[str, str, str]  # the id of the user, the kind, the text


class RunningImports:
    """Runs one import. Who sends the same form again meanwhile gets the same answer, with its new keys."""

    def __init__(self) -> None:
        self._running: tuple[Import, asyncio.Task[Reply]] | None = None

    async def run(self, wanted: Import, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """What `work` returns, or what the same import that runs already does; Conflict while another one runs."""
        if self._running is None:
            self._running = wanted, asyncio.create_task(self._run(work))
        known, task = self._running
        if known != wanted:
            raise Conflict("Another import is running. Nothing of this one was done; send it again in a moment")
        return await asyncio.shield(task)  # the other requests still wait for it

    async def _run(self, work: Callable[[], Awaitable[Reply]]) -> Reply:
        try:
            return await work()
        finally:
            self._running = None

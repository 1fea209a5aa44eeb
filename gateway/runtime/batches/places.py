"""How many lines run at a time, in all and of each account, and how soon the next one may begin."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.config.settings import BatchSettings
from gateway.runtime.batches.pace import Pace


class Places:
    """The limits are read each time, so a reload changes them."""

    def __init__(self, settings: Callable[[], BatchSettings]) -> None:
        self.pace = Pace()
        self._settings = settings
        self._accounts: Counter[str] = Counter()
        self._running = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def place(self, account: str) -> AsyncIterator[None]:
        """Wait for a place, and keep it."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._has_room(account))
            self._running += 1
            self._accounts[account] += 1
        try:
            yield
        finally:
            self._running -= 1
            self._accounts[account] -= 1
            if not self._accounts[account]:
                del self._accounts[account]
            async with self._freed:
                self._freed.notify_all()

    def _has_room(self, account: str) -> bool:
        settings = self._settings()
        return self._running < settings.concurrency and self._accounts[account] < settings.account_concurrency

"""Turns by name: what has the same name runs one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import TooManyRequests


class Turns:
    """A lock for each name, which is forgotten when nothing of the name runs or waits.

    More than `most` of a name get `refusal`.
    """

    def __init__(self, most: int, *, refusal: str) -> None:
        self._most = most
        self._refusal = refusal
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}  # with the number of those that hold it or wait for it

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for one's turn, and have it inside of the block; TooManyRequests."""
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        if users >= self._most:
            raise TooManyRequests(self._refusal)
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            users = self._locks[name][1] - 1
            if users:
                self._locks[name] = (lock, users)
            else:
                del self._locks[name]

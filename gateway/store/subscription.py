"""A subscription to a channel, at one server of the store, over a link of its own.

redis-py's subscriptions are not used: its import takes 9 MiB of each worker, and a task that is cancelled while it
sends may go on (`asyncio.wait_for` on CPython 3.11).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store.address import RedisAddress
from gateway.store.link import RedisLink

MOST_UNREAD = 10_000  # messages; a reader that is later than that has to subscribe again


class Subscription:
    """The messages of one channel from now on."""

    def __init__(self) -> None:
        self._unread: deque[dict[str, Any]] = deque()
        self._changed = asyncio.Event()
        self._lost = ""  # why nothing comes any more

    def push(self, reply: list[Any]) -> None:
        """Take a message from the connection: its kind, the channel, its data."""
        if self._lost:
            return
        kind, channel, data = reply
        if len(self._unread) == MOST_UNREAD:
            self.lose(f"{MOST_UNREAD} messages were not read")
        else:
            self._unread.append({"type": kind.decode(), "channel": channel, "data": data})
            self._changed.set()

    def lose(self, reason: str = "the connection was lost") -> None:
        """End it: a message may have been missed."""
        self._lost = reason
        self._unread.clear()
        self._changed.set()

    async def message(self, *, within: float) -> dict[str, Any] | None:
        """The next message, in redis-py's form; the first one is the confirmation of type "subscribe".

        None if there is none within `within` seconds. StoreUnavailable if one may have been missed; a new subscription
        is then needed.
        """
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return None
        if self._lost:
            raise StoreUnavailable(detail=self._lost, fate=StoreFate.NEVER_SENT)
        message = self._unread.popleft()
        if not self._unread:
            self._changed.clear()
        return message


@asynccontextmanager
async def subscribed(address: RedisAddress, name: str) -> AsyncIterator[Subscription]:
    """Subscribe at a server; StoreUnavailable when that fails."""
    subscription = Subscription()
    link = RedisLink(address, channel=name, on_push=subscription.push, on_lost=subscription.lose)
    try:
        await link.connect()
        yield subscription
    finally:
        await link.close()

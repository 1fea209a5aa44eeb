"""A subscription to a channel, at one server of the store.

A task that is cancelled while it waits here ends, although redis-py may suppress the cancellation: it sends with
`asyncio.wait_for`, which on CPython 3.11 returns normally if the cancellation comes in the event loop turn in which the
bytes were sent. So the task's own count of cancellation requests is checked after every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from gateway.store.address import RedisAddress
from gateway.store.admin_client import server_client

FAILURES = (RedisError, OSError)  # of a subscription whose connection is lost


class Subscription:
    """The messages of one channel from now on."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    async def message(self, *, within: float) -> dict[str, Any] | None:
        """The next message in redis-py's form; the first one is the confirmation of type "subscribe".

        None if there is none within `within` seconds. RedisError or OSError if the connection is lost; a new
        subscription is then needed.
        """
        with _cancellation_heeded():
            message: dict[str, Any] | None = await self._pubsub.get_message(timeout=within)
        return message


@asynccontextmanager
async def subscribed(address: RedisAddress, name: str) -> AsyncIterator[Subscription]:
    """Subscribe at a server; RedisError or OSError when that fails."""
    client = server_client(address)
    try:
        async with client.pubsub() as pubsub:
            with _cancellation_heeded():
                await pubsub.subscribe(name)
            yield Subscription(pubsub)
    finally:
        await client.aclose()


@contextmanager
def _cancellation_heeded() -> Iterator[None]:
    """Raise CancelledError at the end if the task was cancelled, for any result of the call."""
    try:
        yield
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

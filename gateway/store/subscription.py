"""A subscription to a channel, at one server of the store.

A task that is cancelled while it waits here ends, although redis-py may swallow the cancellation: it sends through
`asyncio.wait_for`, which on CPython 3.11 returns as if nothing had happened when the cancellation comes in the turn of
the event loop in which the bytes were sent. So the task's own count of requests is looked at after every call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from redis.asyncio.client import PubSub

from gateway.store.admin_client import server_client
from gateway.store.redis_address import RedisAddress


class Subscription:
    """What is published on one channel from now on."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub

    async def message(self, *, within: float) -> dict[str, Any] | None:
        """The next message as redis-py forms it, first the confirmation of type "subscribe".

        None when there is none after `within` seconds. RedisError or OSError when the connection is lost; a new
        subscription is needed then.
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
    """Raise CancelledError at the end when somebody has cancelled the task, whatever came of the call."""
    try:
        yield
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

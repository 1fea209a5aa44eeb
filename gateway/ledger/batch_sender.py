"""Sends what a worker collects in memory to the store: at intervals, earlier if much waits, and once at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from gateway.errors import GatewayError


class BatchSender:
    """Calls `send` every so many seconds. `send` keeps what could not be sent for the next time."""

    def __init__(self, send: Callable[[], Awaitable[None]], every: float) -> None:
        self._send = send
        self._every = every
        self._due = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def send_soon(self) -> None:
        """Send without waiting for the end of the interval."""
        self._due.set()

    def start(self) -> None:
        """Send from now on, until `stop`."""
        self._sending = asyncio.get_running_loop().create_task(self._send_forever())

    async def stop(self) -> None:
        """Send the last time; what waits is lost if the store is away."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        with contextlib.suppress(GatewayError):
            await self._send()

    async def _send_forever(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), self._every)
            self._due.clear()
            with contextlib.suppress(GatewayError):
                await self._send()

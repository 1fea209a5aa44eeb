"""E-mails that strangers request. They are sent in the background, and few wait for each network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, Final

from gateway.http_server.client_address import network_of
from gateway.web.places import Limit, Places

REQUESTED: Final = Limit(
    name="mail",
    most=32,
    refusal="E-mails that your network asked for wait to be sent; try again in a few minutes",
    most_of_site=256,
    site_refusal="Too many e-mails wait to be sent; try again in a few minutes",
)


CLOSES_WITHIN: Final = 1.0  # seconds


class MailTasks:
    """What is under way, of all networks."""

    def __init__(self) -> None:
        self._places = Places()
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, address: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work in a task, for a client at an address; TooManyRequests, which the recipient does not affect."""
        place = ExitStack()
        place.enter_context(self._places.take(REQUESTED, network_of(address) if address else ""))
        task = asyncio.create_task(work())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: place.close())

    async def finish(self) -> None:
        """Wait for all of them."""
        await asyncio.gather(*self._running)

    async def close(self) -> None:
        """Leave out what waits; who asked can ask again. A message that is being sent has a moment to end."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSES_WITHIN)

"""Runs work on large bodies in turns of the event loop, and leaves most of the loop's time to other requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

OTHERS: Final = 2.0  # times what a turn takes
LONGEST_PAUSE: Final = 0.1  # seconds; a plugin or the machine may have stopped in a turn
SLICE: Final = 0.0005  # seconds of stepwise work in one turn


class Sender(Protocol):
    """The request, or the call, whose body is worked on."""

    @property
    def client_gone(self) -> bool:
        """Whether its client has disconnected."""


class PacedSteps:
    """The work on large bodies in one worker.

    A request takes several turns of the loop. If each turn waited for such work, a request beside it would wait for it
    several times. So one body is worked on at a time, and a pause follows each turn: all of the work together gets a
    third of the loop's time. The accounts take turns, and so do the bodies of an account. A request whose client
    disconnects gives up its turn: its task is cancelled there.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._of_account: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._free_from = 0.0  # monotonic seconds
        self._waiting: set[asyncio.Task[Any] | None] = set()

    @asynccontextmanager
    async def turn(self, account: str, sender: Sender) -> AsyncIterator[None]:
        """Wait for the next turn; the block is the work, and must not wait. CancelledError if the client has left."""
        if sender.client_gone:
            raise asyncio.CancelledError
        own = self._of_account.get(account)
        if own is None:
            own = self._of_account[account] = asyncio.Lock()
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            async with own, self._lock:  # so at most one body of each account waits for the second lock
                began = time.monotonic()
                if began < self._free_from:
                    await asyncio.sleep(self._free_from - began)
                    began = time.monotonic()
                try:
                    yield
                finally:
                    now = time.monotonic()
                    self._free_from = now + min(OTHERS * (now - began), LONGEST_PAUSE)
        finally:
            self._waiting.discard(task)

    def leave(self, task: asyncio.Task[Any]) -> None:
        """The client of this task's request has disconnected: cancel the task if it waits for a turn."""
        if task in self._waiting:
            task.cancel()

    async def run(self, account: str, sender: Sender, steps: Iterator[None]) -> None:
        """Exhaust `steps`, in as many turns as they need; raises what they and `turn` raise."""
        while True:
            async with self.turn(account, sender):
                began = time.monotonic()
                for _ in steps:
                    if time.monotonic() - began > SLICE:
                        break
                else:
                    return

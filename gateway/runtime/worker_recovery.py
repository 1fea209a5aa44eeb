"""Brings to the store what dead workers left in their journals: settlements that were never, or never surely, booked.

The supervisor runs it: at start for the processes of the run before, after a worker's death, and every `AGAIN` seconds
as long as the store was away. What it takes over is kept for a minute after it was booked and sent again when another
server, or another life of one, serves the store: for that `reconnected` belongs to the store. Calls that ran are
on the dead worker's board and are charged for what they had delivered. Those that got no place there are charged at
their last checkpoint once their leases have run out: in a storm of deaths no worker lives the minute it would take one.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path

from gateway.errors import GatewayError
from gateway.ledger import Journal, Ledger
from gateway.log import gateway_log
from gateway.store import Store
from gateway.store.link import ServerIdentity

AGAIN = 5.0  # seconds
TOGETHER = 1.0  # seconds of deaths that are looked after in one go
LAPSED = 60.5 + TOGETHER  # seconds after the first of them in which the leases of their calls have run out


class WorkerRecovery:
    """The heir of every dead worker of one data folder."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._journal = Journal(folder)  # of its own it has nothing; it fills with what is taken over
        self._journal.store_is_whole = store.whole
        self._ledger = Ledger(store, {}, journal=self._journal)
        assert self._ledger.recovery is not None
        self._recovery = self._ledger.recovery
        self._due = asyncio.Event()
        self._lapses: deque[float] = deque()  # moments when leases of the dead will have run out
        self.look()

    def look(self) -> None:
        """Somebody has died, or the store is back."""
        self._due.set()
        lapse = time.monotonic() + LAPSED
        if not self._lapses or lapse - self._lapses[-1] > TOGETHER:
            self._lapses.append(lapse)

    def reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        """For the store's `on_reconnect`: what was taken over may be forgotten there, and what waited can be sent."""
        self._recovery.reconnected(before, now)
        self.look()

    async def run(self) -> None:
        """Look whenever there may be something."""
        while True:
            try:
                async with asyncio.timeout(self._pause()):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            await self._take_over()
            await self._reclaim()
            self._journal.sweep()

    def _pause(self) -> float:
        if not self._lapses:
            return AGAIN
        lapse = self._lapses[0] - time.monotonic()
        return min(lapse, AGAIN) if lapse > 0 else AGAIN  # past already: the store was away just now

    async def _take_over(self) -> None:
        try:
            taken_over = await self._recovery.take_over()
        except GatewayError:
            return  # the store is away: later
        except OSError as error:
            gateway_log.error("the journals of dead workers cannot be read: %s", error)
            return
        if taken_over.settlements:
            gateway_log.info("brought %d journaled settlements of ended workers to the store", taken_over.settlements)
        if taken_over.calls:
            gateway_log.info("charged %d calls of ended workers for what they had delivered", taken_over.calls)

    async def _reclaim(self) -> None:
        """Charge what was on no board, and what was admitted unheard, once nobody renews it any more."""
        now = time.monotonic()
        due = sum(lapse <= now for lapse in self._lapses)
        if not due:
            return
        try:
            holds = await self._ledger.reclaim()
        except GatewayError:
            return  # later
        for _ in range(due):
            self._lapses.popleft()
        if holds:
            gateway_log.info("charged %d calls of ended workers at their last checkpoint", holds)

    async def close(self) -> None:
        """Let go of the folder; what is younger than a minute stays there for the next start."""
        await self._recovery.close()
        self._journal.close()

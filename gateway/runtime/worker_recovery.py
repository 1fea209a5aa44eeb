"""Sends the settlements in the journals of dead workers to the store, and charges their running calls.

The supervisor runs it: at the start for earlier processes, after a worker's death, and every `AGAIN` seconds while the
store is away. It keeps the entries for a minute after the store confirmed them, and sends them again when another
server, or a restarted one, serves the store; connect `reconnected` to the store for that. Running calls are in the dead
worker's inflight checkpoint and are charged for what they delivered. Calls without a slot there are charged at the cost
stored last, after their leases have expired; if workers die often, none of them lives long enough to do this itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from pathlib import Path

from gateway.errors import GatewayError
from gateway.ledger import Journal, Ledger
from gateway.ledger.journal import Backlog
from gateway.log import gateway_log
from gateway.store import Store
from gateway.store.greeting import ServerIdentity

AGAIN = 5.0  # seconds
TOGETHER = 1.0  # seconds; deaths within them are handled together
LAPSED = 60.5 + TOGETHER  # seconds after the first of these deaths until the leases of their calls have expired


class WorkerRecovery:
    """Takes over the journals and checkpoints of all dead workers of one data folder."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._journal = Journal(folder)  # has only the entries that are taken over
        self._journal.store_is_whole = store.whole
        self._ledger = Ledger(store, {}, journal=self._journal)
        assert self._ledger.recovery is not None
        self._recovery = self._ledger.recovery
        self._due = asyncio.Event()
        self._lapses: deque[float] = deque()  # times at which leases of dead workers will have expired
        self.look()

    @property
    def backlog(self) -> Backlog:
        """What was taken over and the store has not confirmed."""
        return self._journal.backlog

    def look(self) -> None:
        """Check soon: a worker has died, or the store is back."""
        self._due.set()
        lapse = time.monotonic() + LAPSED
        if not self._lapses or lapse - self._lapses[-1] > TOGETHER:
            self._lapses.append(lapse)

    def reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        """For the store's `on_reconnect`: the new server may lack confirmed entries; waiting entries can be sent."""
        self._recovery.reconnected(before, now)
        self.look()

    async def run(self) -> None:
        """Take over and reclaim, at each call of `look` and after each pause."""
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
        return min(lapse, AGAIN) if lapse > 0 else AGAIN  # in the past: the store was away

    async def _take_over(self) -> None:
        try:
            taken_over = await self._recovery.take_over()
        except GatewayError:
            return  # the store is away; try again later
        except OSError as error:
            gateway_log.error("the journals of dead workers cannot be read: %s", error)
            return
        if taken_over.settlements:
            gateway_log.info("brought %d journaled settlements of ended workers to the store", taken_over.settlements)
        if taken_over.calls:
            gateway_log.info("charged %d calls of ended workers for what they had delivered", taken_over.calls)

    async def _reclaim(self) -> None:
        """Charge calls without a slot, and those whose admission had no reply, after their leases expired."""
        now = time.monotonic()
        due = sum(lapse <= now for lapse in self._lapses)
        if not due:
            return
        try:
            holds = await self._ledger.reclaim()
        except GatewayError:
            return  # try again later
        for _ in range(due):
            self._lapses.popleft()
        if holds:
            gateway_log.info("charged %d calls of ended workers at their last checkpoint", holds)

    async def close(self) -> None:
        """Release the folder; entries younger than a minute stay there for the next start."""
        await self._recovery.close()
        self._journal.close()

"""Brings to the store what dead workers left in their journals: settlements that were never, or never surely, booked.

The supervisor runs it: at start for the processes of the run before, after a worker's death, and every `AGAIN` seconds
as long as the store was away. Entries may be sent any number of times, so nothing is lost by trying.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.errors import GatewayError
from gateway.ledger import Journal, Ledger
from gateway.log import gateway_log
from gateway.store import Store

AGAIN = 5.0  # seconds


class Salvage:
    """The heir of every dead worker of one data folder."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._journal = Journal(folder)  # its own stays empty; with it come the others'
        recovery = Ledger(store, {}, journal=self._journal).recovery
        assert recovery is not None
        self._recovery = recovery
        self._due = asyncio.Event()
        self._due.set()

    def look(self) -> None:
        """Somebody has died, or the store is back."""
        self._due.set()

    async def run(self) -> None:
        """Look whenever there may be something."""
        while True:
            try:
                async with asyncio.timeout(AGAIN):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            await self._adopt()

    async def _adopt(self) -> None:
        try:
            entries = await self._recovery.adopt()
        except GatewayError:
            return  # the store is away: later
        except OSError as error:
            gateway_log.error("the journals of dead workers cannot be read: %s", error)
            return
        if entries:
            gateway_log.info("brought %d journaled settlements of ended workers to the store", entries)

    def close(self) -> None:
        """Let go of the folder."""
        self._journal.close()

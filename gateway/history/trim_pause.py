"""Stops the removal of old lines from the store while a backup runs: a lease in the store that importers look at.

The lease is renewed while the block runs. If its process dies, the lease ends and importers go on. `still_held` says
whether it has lasted to this moment: a process that was stopped for longer than the lease has lost it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import Conflict, GatewayError
from gateway.store.links import Links

PAUSED = "history:trimming-paused"
LEASE_MS = 60_000
RENEW_EVERY = 10.0  # seconds


async def is_paused(links: Links) -> bool:
    """Whether a backup runs."""
    return bool(await links.link(PAUSED).call("EXISTS", PAUSED))


class TrimPause:
    """A lease of this process."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._token = secrets.token_hex(16)

    async def take(self) -> None:
        """Conflict if another backup runs."""
        if not await self._links.link(PAUSED).call("SET", PAUSED, self._token, "NX", "PX", LEASE_MS):
            raise Conflict("Another backup runs, or has ended without its last step in the last minute", retry_after=60)

    async def still_held(self) -> bool:
        """Whether the lease is this process's one."""
        found = await self._links.link(PAUSED).call("GET", PAUSED)
        return found is not None and found.decode() == self._token

    async def renew(self) -> None:
        """Renew the lease until cancelled, or until it is lost."""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            try:
                if not await self.still_held():
                    return
                await self._links.link(PAUSED).call("PEXPIRE", PAUSED, LEASE_MS)
            except GatewayError:
                continue  # the store is away; the lease may outlast that

    async def give_back(self) -> None:
        """End the lease."""
        if await self.still_held():
            await self._links.link(PAUSED).call("DEL", PAUSED)


@asynccontextmanager
async def trimming_paused(links: Links) -> AsyncIterator[TrimPause]:
    """No importer begins to trim in the block; one that has begun before may still do so until its round ends."""
    pause = TrimPause(links)
    await pause.take()
    renewing = asyncio.create_task(pause.renew())
    try:
        yield pause
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await pause.give_back()

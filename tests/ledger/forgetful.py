"""A worker on a store of its own that dies and forgets its last moment, and the heir of that worker.

::

    async with Forgetful(folder) as worker:
        await worker.remember()              # what was until now outlives the store
        ...
        await worker.die()
        await worker.come_back()
        async with worker.heir() as heir: await heir.recovery.adopt()
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.ledger import Hold, Journal, Ledger
from gateway.ledger.recovery import Recovery
from gateway.store import EmbeddedServer, Store
from gateway.store.greeting import ServerIdentity
from tests.ledger.records import quote_of
from tests.ledger.storms import append_only_file, on_disk
from tests.polling import until

EVERYONE = frozenset({"default"})
PEPPER = b"0123456789abcdef0123456789abcdef"


class Heir:
    """Who adopts journals of that folder, on a connection of its own."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.journal = Journal(folder)
        recovery = Ledger(store, {}, journal=self.journal).recovery
        assert recovery is not None
        self.recovery: Recovery = recovery
        self.sent_again = False
        self.killed = False
        store.on_reconnect = self._reconnected

    def _reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        self.recovery.reconnected(before, now)
        self.sent_again = True


class Forgetful:
    """A worker's ledger and journal on a store of its own that dies and forgets its last moment.

    While a sync of its file takes long, a server with `appendfsync everysec` answers before it writes, for up to two
    seconds; a kill -9 then loses what was answered. Here the end of the file is cut off instead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedServer(folder / "store")
        self.remembered = 0
        self.ended = False

    async def __aenter__(self) -> Forgetful:
        await self.server.start()
        self.store = await Store.open(self.server.socket, timeout=10.0)
        self.journal = Journal(self.folder / "journal")
        self.ledger = Ledger(self.store, {}, journal=self.journal)
        assert self.ledger.recovery is not None
        self.recovery = self.ledger.recovery
        self.store.on_reconnect = self.recovery.reconnected
        self.accounts = Accounts(self.store, self.ledger)
        await self.accounts.create("acme", balance=10_000)
        text = (await Keys(self.store, PEPPER).create("acme")).text
        self.key = await Authenticator(self.store, PEPPER).authenticate(text)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        await self.store.close()
        await self.server.stop()

    async def admit(self, request_id: str) -> Hold:
        return await self.ledger.admit(request_id, self.key, quote_of(100, tokens=0))

    async def end(self) -> None:
        """The worker is gone and will send nothing more."""
        if not self.ended:
            self.ended = True
            self.store.on_reconnect = None
            await self.recovery.close()
            self.journal.close()

    async def remember(self) -> None:
        """What was until now outlives the server."""
        await on_disk(self.store)
        self.remembered = append_only_file(self.folder).stat().st_size

    async def die(self) -> None:
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGKILL)
        await until(lambda: not self.store.whole())

    async def come_back(self) -> None:
        await self.server.stop()
        os.truncate(append_only_file(self.folder), self.remembered)
        await self.server.start()

    async def assert_charged(self, amount: int) -> None:
        account = await self.accounts.show("acme")
        assert (account.balance, account.held) == (10_000 - amount, 0)
        assert (await self.ledger.audit()).mismatches == []

    @asynccontextmanager
    async def heir(self) -> AsyncIterator[Heir]:
        """Somebody who may adopt; when it ends, its files are for its own heir."""
        store = await Store.open(self.server.socket, timeout=0.25)
        heir = Heir(store, self.folder / "journal")
        try:
            yield heir
        finally:
            if not heir.killed:
                await heir.recovery.close()
            heir.journal.close()
            await store.close()

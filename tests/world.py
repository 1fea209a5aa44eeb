"""An empty store with accounts, keys and a ledger on it: what the tests of the money share.

`async with world(default=GroupLimits(rpm=5)) as w:` is the fixture's use; groups that are not named have no limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.key_edits import KeyEdits
from gateway.accounts.key_record import KeyRecord, Rotated
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import Peppers
from gateway.accounts.store_claim import PepperCheck
from gateway.admin.keys import KeyService
from gateway.admin.outbox import AuditOutbox
from gateway.billing.quote import Quote
from gateway.ledger import GroupLimits, Hold, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import Store
from tests.ledger.records import quote_of

PEPPER = b"0123456789abcdef0123456789abcdef"
EVERYONE = frozenset({"default"})
UNIT = 1_000_000_000


class World:
    """One empty store with everything that works on it."""

    def __init__(self, store: Store, groups: dict[str, GroupLimits]) -> None:
        self.store = store
        self.ledger = Ledger(store, groups)
        self.accounts = Accounts(store, self.ledger)
        self.keys = Keys(store, PEPPER)
        self.auth = Authenticator(store, PEPPER)
        self._asks = 0

    @property
    def key_service(self) -> KeyService:
        """Keys for people and programs."""
        pepper = PepperCheck(self.store, lambda: Peppers(PEPPER))
        return KeyService(self.accounts, self.keys, self._key_edits, AuditOutbox(self.store), pepper)

    @property
    def _key_edits(self) -> KeyEdits:
        return KeyEdits(self.store, self.keys)

    async def edit_key(self, key_id: str, **changes: Any) -> KeyRecord:
        """Change settings of a key."""
        return await self._key_edits.edit(await self.keys.show(key_id), **changes)

    async def rotate_key(self, key_id: str, *, overlap: timedelta) -> Rotated:
        """Replace a key."""
        key = await self.keys.show(key_id)
        return await self._key_edits.rotate(key.account, key.id, overlap=overlap)

    async def caller(
        self, account: str = "acme", *, balance: int = 10 * UNIT, group: str = "default", **key: Any
    ) -> ApiKey:
        """An account, made if need be, and a new key of it."""
        if account not in await self.ledger.accounts():
            await self.accounts.create(account, balance=balance, group=group)
        return await self.auth.authenticate((await self.keys.create(account, **key)).text)

    def ask(
        self,
        key: ApiKey,
        hold: int = 1000,
        tokens: int = 10,
        *,
        model: str = "m",
        request_id: str = "",
        groups: frozenset[str] = EVERYONE,
        session: str = "",
    ) -> tuple[str, ApiKey, Quote]:
        """The arguments of an admission."""
        self._asks += 1
        quote = quote_of(hold, tokens, model=model, groups=groups, session=session)
        return request_id or f"req_{self._asks:032x}", key, quote

    async def admit(self, key: ApiKey, hold: int = 1000, tokens: int = 10, **rest: Any) -> Hold:
        return await self.ledger.admit(*self.ask(key, hold, tokens, **rest))

    async def expire(self, hold: Hold) -> None:
        """Let a hold's lease have run out."""
        name = f"{{a:{hold.key.account}}}"
        await self.store.client.zadd(f"{name}:rx", {hold.request_id: 1})
        for leases in (f"{name}:cc:{hold.key.id}", f"{name}:cc"):
            await self.store.client.zadd(leases, {hold.request_id: 1}, xx=True)

    async def dump(self) -> dict[bytes, bytes]:
        """Every key of the store and its serialised value; not those that expire while it looks."""
        names = sorted([name async for name in self.store.client.scan_iter()])
        values = {name: await self.store.client.dump(name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    async def text(self) -> str:
        """Everything the store holds, readable, for a search."""
        parts: list[Any] = []
        client = self.store.client
        readers: dict[bytes, Any] = {
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"string": client.get,
            b"stream": client.xrange,
        }
        async for name in client.scan_iter():
            kind = await client.type(name)
            parts += [name, await readers[kind](name) if kind in readers else await client.zrange(name, 0, -1)]
        return repr(parts)

    async def proved(self) -> None:
        """The audit finds nothing."""
        report = await self.ledger.audit()
        assert report.mismatches == []


OpenWorld = Callable[..., AbstractAsyncContextManager[World]]


@asynccontextmanager
async def open_world(where: str | Path, **groups: GroupLimits) -> AsyncIterator[World]:
    """A world on the store at a socket or a URL, emptied first."""
    store = await Store.open(where, timeout=20.0)
    try:
        await asyncio.gather(*(link.call("FLUSHALL") for link in store.links))
        yield World(store, groups)
    finally:
        await store.close()

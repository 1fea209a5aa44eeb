"""Goes through the keys of an account or of all, from any key on: a step costs what it gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from gateway.accounts.key_record import KeyRecord
from gateway.accounts.keys import Keys
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.listing.names import account_names
from gateway.store.links import Links

SIZE = 100  # keys of an account that are read at the same time
ACCOUNTS_AT_ONCE = 20  # whose first keys are read at the same time


class Position(Struct, frozen=True, array_like=True, order=True):
    """Where a walk stands: behind a key. Of the creation, in Unix seconds, nothing depends."""

    account: str
    created: int
    key_id: str


class _First(Struct, frozen=True):
    keys: Sequence[KeyRecord]
    last: str  # id behind which more may follow; "" if none does


class KeyWalk:
    """Keys by account, then by their `key_order`."""

    def __init__(self, links: Links, keys: Keys) -> None:
        self._links = links
        self._keys = keys

    async def behind(self, after: Position | None, account: str = "") -> AsyncIterator[Sequence[KeyRecord]]:
        """The keys behind a position, some at a time: of one account, or with "" of all."""
        passed = after.account if after is not None else ""
        if after is not None and account in ("", passed):
            async for keys in self._of(passed, after.key_id):
                yield keys
        if account:
            if account > passed:
                async for keys in self._of(account):
                    yield keys
            return
        async for names in account_names(self._links).pages(after=passed, size=ACCOUNTS_AT_ONCE):
            firsts = await gather_bounded(map(self._first, names))
            for name, first in zip(names, firsts, strict=True):
                yield first.keys
                if first.last:
                    async for keys in self._of(name, first.last):
                        yield keys

    async def _of(self, account: str, after: str = "") -> AsyncIterator[Sequence[KeyRecord]]:
        async for ids in self._keys.id_pages(account, after=after, size=SIZE):
            yield await self._keys.read(account, ids)

    async def _first(self, account: str) -> _First:
        async for ids in self._keys.id_pages(account, size=SIZE):
            return _First(await self._keys.read(account, ids), ids[-1] if len(ids) == SIZE else "")
        return _First((), "")

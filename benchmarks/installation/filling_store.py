"""Fills the store: accounts, keys and settled calls, by the gateway's own classes and its script `write_line`.

Each account has one key and one call; the account LARGE has as many keys and calls as there are accounts.
"""

from __future__ import annotations

import hashlib

from benchmarks.installation.size import LARGE, Size, user_id
from benchmarks.populated import BALANCE, write_lines
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.ledger import Ledger
from gateway.ledger.gather_all import gather_bounded
from gateway.store import Store

CALLS_OF_ONE_TIME = 20
AT_ONCE = 500  # accounts or keys that are made at the same time


class StoreFilling:
    """Makes accounts, keys and calls in an open store."""

    def __init__(self, store: Store, pepper: bytes) -> None:
        self._store = store
        self._ledger = Ledger(store, {})
        self._keys = Keys(store, pepper)

    async def fill(self, size: Size) -> CreatedKey:
        """Make all of them; returns a key of LARGE, which may exist already."""
        await self._ledger.open(LARGE, "default", balance=BALANCE)
        await gather_bounded((self._account(name, n) for n, name in enumerate(size.account_names())), AT_ONCE)
        keys = await gather_bounded((self._keys.create(LARGE) for _ in range(size.accounts)), AT_ONCE)
        await write_lines(self._store, keys[0], size.accounts, at_once=CALLS_OF_ONE_TIME)
        return keys[0]

    async def _account(self, name: str, number: int) -> None:
        await self._ledger.open(name, "default", balance=BALANCE)
        await write_lines(self._store, await self._keys.create(name, user=user_id(number)), 1)


def request_id_of(accounts: int) -> str:
    """The last call of LARGE in an installation of so many accounts; no other account has its id."""
    return f"req_{hashlib.sha1(str(accounts - 1).encode(), usedforsecurity=False).hexdigest()[:32]}"

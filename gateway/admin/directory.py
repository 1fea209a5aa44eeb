"""The names of the accounts: the services over people read them from the store."""

from __future__ import annotations

from typing import Protocol

from gateway.accounts.accounts import NAME
from gateway.errors import NotFound
from gateway.ledger.scripts import Links, slot


class Directory(Protocol):
    """The names of accounts."""

    async def require(self, account: str) -> None:
        """NotFound if there is no such account."""


class StoreDirectory:
    """The accounts of a store."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def require(self, account: str) -> None:
        """NotFound if there is no such account."""
        if not NAME.fullmatch(account) or not await self._links.link(slot(account)).call("EXISTS", slot(account)):
            raise NotFound(f"There is no account {account!r}")

"""A store of which some accounts' servers are away, as a cluster may be: the others answer."""

from __future__ import annotations

from gateway.store import Store
from gateway.store.address import RedisAddress
from gateway.store.link import RedisLink
from gateway.store.links import slot


class Torn:
    """The links of a store, but for some accounts one that was never connected."""

    def __init__(self, store: Store, accounts: tuple[str, ...]) -> None:
        self._store = store
        self._away = {slot(account) for account in accounts}
        self._nowhere = RedisLink(RedisAddress(path="nowhere"))

    @property
    def links(self) -> list[RedisLink]:
        return [*self._store.links, self._nowhere]

    def link(self, slot_key: str) -> RedisLink:
        return self._nowhere if slot_key in self._away else self._store.link(slot_key)


def without(store: Store, *accounts: str) -> Torn:
    """The store without the servers of these accounts."""
    return Torn(store, accounts)

"""Whose connections are open: counted by address, and ranked by how many connections an address has.

An IPv6 address counts as its first 64 bits, which one customer has. A trusted proxy carries the connections of many
clients, so it ranks as if it had an eighth of them. Counting takes about 1 µs per connection and nothing per request.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, Literal, Protocol

from gateway.http_server.client_address import Network, is_trusted, network_of

PROXY_WEIGHT: Final = 8  # so many connections of a trusted proxy count as one
LIST_SECONDS: Final = 0.5e-6  # to list one of 5 to 10,000 connections by their waiting time, measured: 0.2 to 0.8 µs
LISTING_SHARE: Final = 20  # a list of a millisecond is followed by none for so many
Kind = Literal["idle", "unfinished"]


def pause_after_list(connections: int) -> float:
    """Seconds from the start of a list of so many connections until the next one."""
    return LISTING_SHARE * LIST_SECONDS * connections


class Closable(Protocol):
    """The part of a connection that counts here."""

    @property
    def waiting_since(self) -> float | None:
        """Since when it has waited for its client, in the server's coarse time; None while its request is served."""

    def displace(self) -> Kind:
        """Close at once; returns whether it was idle or had an unfinished request."""


class Owner:
    """The open connections of one address."""

    __slots__ = ("_list_again", "_waiting", "connections", "is_proxy", "name")

    def __init__(self, name: str, *, is_proxy: bool) -> None:
        self.name = name
        self.is_proxy = is_proxy
        self.connections: set[Closable] = set()
        self._waiting: list[tuple[float, Closable]] = []  # the longest waiting last
        self._list_again = 0.0  # when the waiting ones may be listed again

    @property
    def rank(self) -> int:
        """The number of its connections, an eighth of it for a trusted proxy."""
        return len(self.connections) // PROXY_WEIGHT if self.is_proxy else len(self.connections)

    def longest_waiting(self) -> Closable | None:
        """The connection that has waited for its client the longest; None if all are served.

        The waiting ones are listed at the limit only, so a request costs nothing more. A list of thousands takes
        milliseconds; so lists take at most about a twentieth of the time, whatever the number of new connections. Its
        time follows from its length: a measured one may hold a garbage collection or another process.
        """
        if not self._waiting and time.monotonic() >= self._list_again:
            self._list_again = time.monotonic() + pause_after_list(len(self.connections))
            waiting = [(since, one) for one in self.connections if (since := one.waiting_since) is not None]
            self._waiting = sorted(waiting, key=itemgetter(0), reverse=True)
        while self._waiting:
            since, connection = self._waiting.pop()
            if connection in self.connections and connection.waiting_since == since:
                return connection
        return None

    def forget_list(self) -> None:
        """Drop the list: it holds closed connections."""
        self._waiting.clear()


class Owners:
    """All open connections of a server by their owners."""

    def __init__(self) -> None:
        self._by_name: dict[str, Owner] = {}
        self._owner_of: dict[Closable, Owner] = {}
        # k different numbers of connections need at least k²/2 connections, so there are few different ranks.
        self._ranks: dict[int, dict[Owner, None]] = {}

    def __len__(self) -> int:
        return len(self._owner_of)

    @property
    def count(self) -> int:
        """The number of addresses."""
        return len(self._by_name)

    def find(self, address: str, trusted: tuple[Network, ...]) -> Owner:
        """The owner of an address; a new one is not kept until it has a connection."""
        owner = self._by_name.get(address)
        if owner is None:
            is_proxy = bool(trusted) and is_trusted(address, trusted)
            name = address if is_proxy else network_of(address)
            owner = self._by_name.get(name) or Owner(name, is_proxy=is_proxy)
        return owner

    def owner_of(self, connection: Closable) -> Owner | None:
        """Whose connection it is; None if it is not counted."""
        return self._owner_of.get(connection)

    def add(self, connection: Closable, owner: Owner) -> None:
        """Count a connection."""
        before = owner.rank if owner.connections else None
        owner.connections.add(connection)
        self._owner_of[connection] = owner
        self._by_name[owner.name] = owner
        self._rank(owner, before)

    def remove(self, connection: Closable) -> None:
        """Count a connection no more; nothing happens if it is not counted."""
        owner = self._owner_of.pop(connection, None)
        if owner is None:
            return
        before = owner.rank
        owner.connections.discard(connection)
        self._rank(owner, before)
        if not owner.connections:
            del self._by_name[owner.name]

    def ranked(self) -> Iterator[Owner]:
        """The owners, those with the most connections first; stop before anything is added or removed."""
        for rank in sorted(self._ranks, reverse=True):
            yield from self._ranks[rank]

    def _rank(self, owner: Owner, before: int | None) -> None:
        after = owner.rank if owner.connections else None
        if before == after:
            return
        if before is not None:
            of_rank = self._ranks[before]
            del of_rank[owner]
            if not of_rank:
                del self._ranks[before]
        if after is not None:
            self._ranks.setdefault(after, {})[owner] = None

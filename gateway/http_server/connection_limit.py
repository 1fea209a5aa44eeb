"""The limit of open client connections, and the share of it that one address may have.

At the limit, a new connection displaces one that waits for its client: the oldest of the address that has the most. A
connection waits while it is idle, its head is unfinished, its body drips, or its client does not close. A request that
is served is never displaced. In one tick only some make room for addresses with many connections already; more of
theirs are refused, which costs a tenth of a connection.

An eighth of the places is kept from any single address, also if all its requests are served. A trusted proxy may have
all places; while a body is under way through it, the connection counts for the forwarded address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from gateway.http_server.client_address import Network
from gateway.http_server.owners import Closable, Owner, Owners, pause_after_list

KEPT_FOR_OTHERS: Final = 8  # one of so many places is kept from each single address
DISPLACED_BY_MANY: Final = 16  # one of so many places is cleared in a tick for addresses with many connections
ANSWERED_AT_ONCE: Final = 32  # refused connections that may be open beyond the limit to receive their answer


class Dropped(Struct, frozen=True, kw_only=True):
    """What happened at the limit in one tick, and who has the most connections."""

    idle: int = 0  # closed for a new one
    unfinished: int = 0  # closed for a new one: an unfinished head, a body that drips
    refused: int = 0  # new ones
    address: str = ""
    connections: int = 0  # of that address


#: Called about once per tick with what was dropped.
OnFull = Callable[[Dropped], None]
Trusted = Callable[[], tuple[Network, ...]]


class ConnectionLimit:
    """One per server; `most` is 0 without a limit. `trusted` returns the networks of the trusted proxies."""

    def __init__(self, most: int, on_full: OnFull | None = None, *, trusted: Trusted = tuple) -> None:
        self.most = most
        self.most_of_one = most - most // KEPT_FOR_OTHERS
        self._on_full = on_full
        self._trusted = trusted
        self._owners = Owners()
        self._listed: set[Owner] = set()
        self._search_again = 0.0  # when all owners may be searched again
        self._closed = {"idle": 0, "unfinished": 0}  # since the last tick
        self._refused = 0
        self._most_displaced = max(most // DISPLACED_BY_MANY, DISPLACED_BY_MANY)  # in one tick
        self._displaced = 0

    def is_crowded(self, address: str) -> bool:
        """Whether a new connection of the address is to be refused before anything is made for it; counts it then."""
        if len(self._owners) < self.most_of_one:
            return False
        owner = self._owners.find(address, self._trusted())
        is_crowded = (self._has_share(owner) or len(self._owners) >= self.most) and self._is_spent(owner)
        self._refused += is_crowded
        return is_crowded

    def admit(self, connection: Closable, address: str) -> bool:
        """Count a new connection after making room for it; False if there is no room, and it is to be refused."""
        owner = self._owners.find(address, self._trusted())
        if self._has_share(owner):
            has_room = not self._is_spent(owner) and self._displace_first([owner])
        elif len(self._owners) >= self.most:
            has_room = not self._is_spent(owner) and self._displace_any()
        else:
            has_room = True
        if has_room:
            self._owners.add(connection, owner)
        else:
            self._refused += 1
        return has_room

    def move(self, connection: Closable, address: str) -> None:
        """Count an open connection for another address, which a proxy has forwarded, or for the proxy again."""
        if self._owners.owner_of(connection) is not None:
            self._owners.remove(connection)
            self._owners.add(connection, self._owners.find(address, self._trusted()))

    def replace(self, connection: Closable, other: Closable) -> None:
        """Count another connection in place of an open one."""
        owner = self._owners.owner_of(connection)
        if owner is not None:
            self._owners.add(other, owner)  # first: an owner without connections is forgotten
            self._owners.remove(connection)

    def remove(self, connection: Closable) -> None:
        """A connection is closed."""
        self._owners.remove(connection)

    def tick(self) -> None:
        """Report what happened since the last call, and forget lists of connections."""
        for owner in self._listed:
            owner.forget_list()
        self._listed.clear()
        self._displaced = 0
        closed, refused = self._closed, self._refused
        if not refused and not any(closed.values()):
            return
        self._closed, self._refused = dict.fromkeys(closed, 0), 0
        if self._on_full is not None:
            self._on_full(self._report(closed, refused))

    def _report(self, closed: dict[str, int], refused: int) -> Dropped:
        top = next(self._owners.ranked(), None)
        address, connections = (top.name, len(top.connections)) if top is not None else ("", 0)
        return Dropped(**closed, refused=refused, address=address, connections=connections)

    def _has_share(self, owner: Owner) -> bool:
        """Whether it has all that a single address may have."""
        return len(owner.connections) >= self.most_of_one and not owner.is_proxy

    def _is_spent(self, owner: Owner) -> bool:
        """Whether enough was displaced in this tick for an owner with at least half of the average."""
        if self._displaced < self._most_displaced or owner.is_proxy:
            return False
        return 2 * len(owner.connections) * self._owners.count >= self.most

    def _displace_any(self) -> bool:
        if time.monotonic() < self._search_again:
            return False
        if self._displace_first(self._owners.ranked()):
            return True
        self._search_again = time.monotonic() + pause_after_list(len(self._owners))
        return False

    def _displace_first(self, owners: Iterable[Owner]) -> bool:
        """Close the connection of the first owner that has one to displace."""
        for owner in owners:
            self._listed.add(owner)
            connection = owner.longest_waiting()
            if connection is not None:
                self._owners.remove(connection)
                self._closed[connection.displace()] += 1
                self._displaced += 1
                return True
        return False

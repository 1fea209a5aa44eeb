"""The topologies of a store map keys to links, and update the map when servers change.

A topology is made with a callback that it calls when another server, or a restarted one, serves some keys. This module
has the one of a single server; `sentinel` and `cluster` have the others.
"""

from __future__ import annotations

from gateway.store.address import RedisAddress
from gateway.store.link import OnReconnect, RedisLink


class OneServer:
    """The topology of one server."""

    def __init__(self, link: RedisLink, on_reconnect: OnReconnect) -> None:
        self._link = link
        link.on_reconnect = on_reconnect

    @property
    def links(self) -> list[RedisLink]:
        """Every link at this moment."""
        return [self._link]

    @property
    def address(self) -> RedisAddress:
        """A server that serves now, as far as is known."""
        return self._link.address

    def link(self, slot_key: str) -> RedisLink:
        """The link to the server that holds this key."""
        return self._link

    async def connect(self) -> None:
        """Connect, or raise StoreUnavailable; in both cases it keeps reconnecting until `close`."""
        await self._link.connect()

    async def close(self) -> None:
        """End every connection."""
        await self._link.close()

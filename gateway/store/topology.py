"""The interface of the three kinds of store: one server, a master with sentinels, a cluster."""

from __future__ import annotations

from typing import Protocol

from gateway.store.link import OnReconnect, RedisLink
from gateway.store.redis_address import RedisAddress


class Topology(Protocol):
    """Maps keys to links, and updates the map when servers change.

    Made with a callback that it calls when another server, or a restarted one, serves some keys.
    """

    @property
    def links(self) -> list[RedisLink]:
        """Every link at this moment."""

    @property
    def address(self) -> RedisAddress:
        """A server that serves now, as far as is known."""

    def link(self, slot_key: str) -> RedisLink:
        """The link to the server that holds this key."""

    async def connect(self) -> None:
        """Connect, or raise StoreUnavailable; in both cases it keeps reconnecting until `close`."""

    async def close(self) -> None:
        """End every connection."""


class OneServer:
    """The topology of one server."""

    def __init__(self, link: RedisLink, on_reconnect: OnReconnect) -> None:
        self._link = link
        link.on_reconnect = on_reconnect

    @property
    def links(self) -> list[RedisLink]:
        return [self._link]

    @property
    def address(self) -> RedisAddress:
        return self._link.address

    def link(self, slot_key: str) -> RedisLink:
        return self._link

    async def connect(self) -> None:
        await self._link.connect()

    async def close(self) -> None:
        await self._link.close()

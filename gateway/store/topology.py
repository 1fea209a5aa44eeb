"""The interface of the three kinds of store: one server, a master with sentinels, a cluster."""

from __future__ import annotations

from typing import Protocol

from gateway.store.link import OnReconnect, RedisLink
from gateway.store.redis_address import RedisAddress


class Topology(Protocol):
    """Maps keys to links, and updates the map when servers change."""

    on_reconnect: OnReconnect | None  # called when another server, or a restarted one, serves some keys

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

    def __init__(self, address: RedisAddress, *, timeout: float) -> None:
        self._link = RedisLink(address, timeout=timeout)

    @property
    def on_reconnect(self) -> OnReconnect | None:
        return self._link.on_reconnect

    @on_reconnect.setter
    def on_reconnect(self, call: OnReconnect | None) -> None:
        self._link.on_reconnect = call

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

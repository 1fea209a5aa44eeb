"""One process's connections to the store: links for calls, subscriptions, and a redis-py client for slow commands.

`link(slot_key)` returns the link for an account: in a cluster the link to that slot's master, with sentinels the one
link that follows the master. Neither it nor `client` ever retries. `client` needs redis-py, which is imported at its
first use: it takes as long as all else that a command imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.errors import GatewayError, StoreUnavailable
from gateway.store.address import ClusterAddress, SentinelAddress, StoreAddress
from gateway.store.cluster import Cluster
from gateway.store.durability import unconfirmed_on
from gateway.store.greeting import ServerIdentity, info_fields
from gateway.store.identity import IDENTITY, PROBE, StoreGuard, cluster_tags, tagged
from gateway.store.link import OnReconnect, RedisLink
from gateway.store.sentinel import SentinelMaster
from gateway.store.topology import OneServer
from gateway.store.url import address_of
from gateway.store.verification import verify

if TYPE_CHECKING:
    import redis.asyncio

    from gateway.store.subscription import Subscription

#: Seconds for one answer, for work on a whole store: an audit, a backup, a restore.
LONG_TIMEOUT = 30.0
PROBE_MS = 60_000
LISTEN_AGAIN = 1.0  # seconds after a channel broke


class StoreMemory(NamedTuple):
    """Bytes; the limit is 0 where a server has none."""

    used: int
    limit: int


class Store:
    """An opened store; `open` makes it, `close` ends its connections."""

    def __init__(self, address: StoreAddress, *, timeout: float = 0.25, guard: StoreGuard | None = None) -> None:
        self.address = address
        self.guard = guard
        self.on_reconnect: OnReconnect | None = None  # called when another server, or a restarted one, serves some keys
        self._topology = _topology(address, self._reconnected, timeout=timeout, guard=guard)
        self._opened: dict[RedisLink, ServerIdentity] = {}  # the identity that `open` found for each link

    @classmethod
    async def open(
        cls,
        where: str | Path | StoreAddress,
        *,
        timeout: float = 0.25,
        required: bool = True,
        guard: StoreGuard | None = None,
    ) -> Store:
        """Connect to a URL, a socket's path or an address; with a guard only to a store that it accepts.

        StoreSetupError for an invalid URL. StoreUnavailable if no server answers and `required` is true; otherwise the
        store is returned and its links keep reconnecting.
        """
        store = cls(address_of(where), timeout=timeout, guard=guard)
        try:
            await store._topology.connect()
        except BaseException as error:
            if required or not isinstance(error, StoreUnavailable):
                await store.close()
                raise
        store._opened = {link: link.identity for link in store.links}
        return store

    @cached_property
    def client(self) -> redis.asyncio.Redis:
        """redis-py's client; it connects at its first command."""
        from gateway.store.admin_client import cold_client

        return cold_client(self.address)

    def link(self, slot_key: str) -> RedisLink:
        """The link to the server that has this key's slot now; do not store it."""
        return self._topology.link(slot_key)

    @property
    def links(self) -> list[RedisLink]:
        """Every link at this moment."""
        return self._topology.links

    def whole(self) -> bool:
        """Whether every server that holds keys is connected."""
        return all(link.connected for link in self._topology.links)

    def _reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        if self.on_reconnect is not None:
            self.on_reconnect(before, now)

    def channel(self, name: str) -> AbstractAsyncContextManager[Subscription]:
        """A subscription at a server that serves now; it gets the messages published at any of them."""
        from gateway.store.subscription import subscribed

        return subscribed(self._topology.address, name)

    async def listen(
        self,
        name: str,
        receive: Callable[[dict[str, Any]], Awaitable[None]],
        *,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Pass the messages of a channel to `receive` until cancelled; subscribe again `LISTEN_AGAIN` s after a loss.

        `receive` gets them in redis-py's form, first of each subscription the one of type "subscribe".
        """
        while True:
            with contextlib.suppress(GatewayError):
                async with self.channel(name) as channel:
                    while True:
                        if (message := await channel.message(within=5.0)) is not None:
                            await receive(message)
            lost()
            await asyncio.sleep(LISTEN_AGAIN)

    async def ping(self) -> float:
        """The time of one round trip to every server, in seconds; StoreUnavailable if one does not answer."""
        started = time.perf_counter()
        await asyncio.gather(*(link.call("PING") for link in self.links))
        return time.perf_counter() - started

    @property
    def problem(self) -> str:
        """Why a server is not used though it answers, as a text for the operator; empty if there is no such server."""
        return next((link.problem for link in self.links if link.problem), "")

    @property
    def identity_keys(self) -> list[str]:
        """The keys that hold the store's identity: one, or in a cluster one for every 128th slot."""
        tags = cluster_tags() if isinstance(self.address, ClusterAddress) else ("",)
        return [tagged(IDENTITY, tag) for tag in tags]

    async def probe(self) -> None:
        """Check that every server holds the expected store and takes a write.

        StoreUnavailable if one does not, with the server's own reason: OOM, READONLY, MISCONF, NOREPLICAS.
        """
        await asyncio.gather(*(self._probe(link) for link in self.links))

    async def _probe(self, link: RedisLink) -> None:
        await link.call_repeatable("PING")
        await verify(link)
        tag = link.tag()
        if tag is not None:
            await link.call_repeatable("SET", tagged(PROBE, tag), "1", "PX", PROBE_MS)

    async def faults(self) -> list[str]:
        """Settings of the servers with which money is lost, as texts for the operator."""
        return await self._settings(_faults)

    async def warnings(self) -> list[str]:
        """`faults`, and settings with which money may be lost in some failovers."""
        replicated = isinstance(self.address, SentinelAddress | ClusterAddress)
        return [*await self.faults(), *await self._settings(partial(_warnings, replicated=replicated))]

    async def _settings(self, find: Callable[[dict[str, str]], list[str]]) -> list[str]:
        found: dict[str, None] = {}
        for info in await asyncio.gather(*(link.call("INFO") for link in self.links)):
            found |= dict.fromkeys(find(info_fields(info)))
        return list(found)

    async def memory(self) -> StoreMemory:
        """What all servers together use, and may use; StoreUnavailable if one does not answer."""
        found = [
            info_fields(info) for info in await asyncio.gather(*(link.call("INFO", "memory") for link in self.links))
        ]
        used, most = ([int(fields.get(name, 0)) for fields in found] for name in ("used_memory", "maxmemory"))
        return StoreMemory(sum(used), sum(most) if all(most) else 0)

    async def unconfirmed(self) -> list[str]:
        """Wait until all writes since `open` survive a crash; return the conditions that were not met, as texts.

        Meanwhile the links answer no other call: this is for administrative commands.
        """
        replicated = isinstance(self.address, SentinelAddress | ClusterAddress)
        links = {*self._opened, *self.links}
        waiting = (unconfirmed_on(link, since=self._opened.get(link), replicated=replicated) for link in links)
        return [condition for condition in await asyncio.gather(*waiting) if condition]

    async def close(self) -> None:
        """Close every connection; calls in flight fail with StoreUnavailable."""
        await self._topology.close()
        if (client := self.__dict__.get("client")) is not None:  # it was used
            from gateway.store.admin_client import close_client

            await close_client(client)


def _topology(
    address: StoreAddress, on_reconnect: OnReconnect, *, timeout: float, guard: StoreGuard | None
) -> OneServer | Cluster:
    match address:
        case SentinelAddress():
            return SentinelMaster(address, on_reconnect, timeout=timeout, guard=guard)
        case ClusterAddress():
            return Cluster(address, on_reconnect, timeout=timeout, guard=guard)
        case _:
            return OneServer(RedisLink(address, timeout=timeout, guard=guard), on_reconnect)


def _faults(info: dict[str, str]) -> list[str]:
    found = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            f"the store's maxmemory-policy is {policy}: it may throw balances away; set maxmemory-policy noeviction"
        )
    if info.get("aof_enabled") == "0":
        found.append("the store keeps no append-only file: a crash loses settled money; set appendonly yes")
    return found


def _warnings(info: dict[str, str], *, replicated: bool) -> list[str]:
    if info.get("role") == "slave":
        return ["the store is a replica and refuses writes; give the master's URL"]
    if replicated and "min_slaves_good_slaves" not in info:
        return [
            "a master of the store takes writes while no replica is there: what it books while it is cut off is thrown "
            "away when it returns; set min-replicas-to-write 1"
        ]
    return []

"""A cluster: one link per master, and a map from hash slots to links that is updated when it is wrong.

The map is read again after a redirection, a lost connection and a reconnect, and until every slot has a master that
answers. A redirected command was not executed, so it is sent once more. The link of a slot's new master gets the
identity of the former one. So `on_reconnect` is called for it, and the journal sends the settlements again that the
former master may not have replicated.

Sharp edge: a script is never run in a slot that is being moved key by key (ASK). The keys of an account are then on two
servers, so the script is refused as unavailable until the move is complete. Atomic slot migration (Valkey 9) has no
such state.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from gateway.errors import GatewayError, StoreFate, StoreUnavailable
from gateway.log import gateway_log
from gateway.store.address import ClusterAddress, RedisAddress
from gateway.store.connection import ReplyTo
from gateway.store.greeting import NOBODY, ServerIdentity
from gateway.store.identity import EVERY, StoreGuard, first_tag
from gateway.store.link import OnReconnect, RedisLink
from gateway.store.slots import SLOTS, slot_of

MIN_PAUSE = 0.05  # seconds between two reads of the map
MAX_PAUSE = 0.5
CLOSE_AFTER = 1.0  # seconds a link without slots is kept for the replies it still waits for

Node = tuple[str, int]


class Cluster:
    """The topology of a cluster."""

    def __init__(
        self, address: ClusterAddress, on_reconnect: OnReconnect, *, timeout: float, guard: StoreGuard | None
    ) -> None:
        self._on_reconnect = on_reconnect
        self._guard = guard
        self._where = address
        self._timeout = timeout
        self._by_node: dict[Node, RedisLink] = {}
        self._nobody = RedisLink(address.nodes[0])  # never started: commands for a slot without a master fail at once
        self._slots = [self._nobody] * SLOTS
        self._doubt = asyncio.Event()  # the map may be wrong
        self._task: asyncio.Task[None] | None = None
        self._closing: dict[RedisLink, asyncio.Task[None]] = {}
        self._turn = 0

    @property
    def links(self) -> list[RedisLink]:
        return list(self._by_node.values()) or [self._nobody]

    @property
    def address(self) -> RedisAddress:
        for link in self._by_node.values():
            if link.connected:
                return link.address
        return self._where.nodes[0]

    def link(self, slot_key: str) -> RedisLink:
        return self._slots[slot_of(slot_key)]

    async def connect(self) -> None:
        try:
            await self._refresh()
            await asyncio.gather(*(link.connect() for link in self.links if link is not self._nobody))
        finally:
            self._doubt.set()
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._stay_right())

    async def close(self) -> None:
        tasks = [task for task in (self._task, *self._closing.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._task = None
        await asyncio.gather(*(link.close() for link in {*self._by_node.values(), *self._closing}))

    # The map ---------------------------------------------------------------------------------------------------------

    async def _stay_right(self) -> None:
        """Read the map while it may be wrong."""
        pause = MIN_PAUSE
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            try:
                await self._refresh()
                sure = self._nobody not in self._slots and all(link.connected for link in self._by_node.values())
            except StoreUnavailable:
                sure = False
            await asyncio.sleep(pause)
            if sure:
                pause = MIN_PAUSE
            else:
                pause = min(2 * pause, MAX_PAUSE)
                self._doubt.set()

    async def _refresh(self) -> None:
        """Use the map of the first node that has one; StoreUnavailable if none answers."""
        reason = "no node was asked"
        connected = [link for link in self._by_node.values() if link.connected]
        self._turn += 1  # begin with another node each time, because one may be isolated
        for link in [connected[(self._turn + n) % len(connected)] for n in range(len(connected))]:
            try:
                return self._take(await link.call("CLUSTER", "SLOTS"), link.address)
            except GatewayError as error:
                reason = error.detail or error.message
        for address in self._where.nodes:
            visit = RedisLink(address, timeout=self._timeout)
            try:
                await visit.connect()
                return self._take(await visit.call("CLUSTER", "SLOTS"), address)
            except GatewayError as error:
                reason = error.detail or error.message
            finally:
                await visit.close()
        raise StoreUnavailable(detail=f"no node tells the cluster's slots: {reason}", fate=StoreFate.NEVER_SENT)

    def _take(self, ranges: list[Any], asked: RedisAddress) -> None:
        """Route by a node's answer; an empty host means the node's own."""
        slots = [self._nobody] * SLOTS
        for start, end, master, *_ in ranges:
            host = master[0].decode() if master[0] else ""
            link = self._link_to((asked.host if host in ("", "?") else host, master[1]))
            slots[start : end + 1] = [link] * (end + 1 - start)
        if not ranges:
            raise StoreUnavailable(detail="the node serves no slots", fate=StoreFate.NEVER_SENT)
        before, self._slots = self._slots, slots
        for old, new in set(zip(before, slots, strict=True)):
            if old is not new and self._nobody not in (old, new):
                gateway_log.warning("slots have moved from %s to %s", old.address, new.address)
                self._succeed(old, new)
        serving = set(slots)
        for node, link in list(self._by_node.items()):
            if link not in serving:
                self._retire(node, link)

    def _link_to(self, node: Node) -> RedisLink:
        link = self._by_node.get(node)
        if link is None:
            host, port = node
            link = RedisLink(
                msgspec.structs.replace(self._where.nodes[0], host=host, port=port),
                timeout=self._timeout,
                on_redirect=self._redirected,
                guard=self._guard,
            )
            link.tag = partial(self._tag, link)
            link.on_reconnect = self._reconnected
            link.on_lost = self._doubt.set
            self._by_node[node] = link
            link.start()
        return link

    def _tag(self, link: RedisLink) -> str | None:
        return first_tag(slot for slot in range(0, SLOTS, EVERY) if self._slots[slot] is link)

    def _retire(self, node: Node, link: RedisLink) -> None:
        """Close a link without slots after its last replies have arrived."""

        async def later() -> None:
            await asyncio.sleep(CLOSE_AFTER)
            await link.close()
            self._closing.pop(link, None)

        del self._by_node[node]
        self._closing[link] = asyncio.get_running_loop().create_task(later())

    # Who serves now --------------------------------------------------------------------------------------------------

    def _succeed(self, old: RedisLink, new: RedisLink) -> None:
        """Called when `new` serves slots of `old`; it may lack writes that `old` had."""
        if new.connected:
            asyncio.get_running_loop().call_soon(self._reconnected, old.identity, new.identity)
        elif old.identity is not NOBODY:
            new.identity = old.identity  # its connect will compare itself with the one before

    def _reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        self._doubt.set()
        self._on_reconnect(before, now)

    def _redirected(self, command: bytes, future: ReplyTo, reply: str) -> bool:
        """Send a command to the server the reply names, and for MOVED route the slot there at once."""
        kind, slot, where = reply.split(" ")[:3]
        host, _, port = where.rpartition(":")
        if not host or (kind == "ASK" and b"\r\nEVAL" in command[:24]):
            self._doubt.set()
            return False
        link = self._link_to((host, int(port)))
        if kind == "MOVED":
            old, self._slots[int(slot)] = self._slots[int(slot)], link
            if old is not link and old is not self._nobody:
                self._succeed(old, link)
            self._doubt.set()
        link.forward(command, future, asking=kind == "ASK")
        return True

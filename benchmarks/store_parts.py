"""The memory of a store by what is in it, as the store says itself."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.store import Store

PAGE = 1000  # keys read at once
#: Parts of the store's memory by the ends, or the middles, of the names of keys.
PARTS = {
    "lines": (":lg",),
    "markers": (":st:",),
    "idempotency": (":id:", ":ids", ":idb"),
    "holds": (":rv", ":rx"),
}


class Part(Struct, kw_only=True):
    """A part of the store's memory: its keys, the objects in them, and bytes with its part of the tables of keys."""

    keys: int = 0
    expiring: int = 0
    count: int = 0
    bytes: float = 0.0

    @property
    def each(self) -> float:
        """Bytes of one object."""
        return self.bytes / self.count if self.count else 0.0


async def used_memory(store: Store) -> int:
    """Bytes that the store has allocated."""
    client: Any = store.client
    return int((await client.info("memory"))["used_memory"])


async def version_of(store: Store) -> str:
    """The server's name and version."""
    client: Any = store.client
    info = await client.info("server")
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"


async def parts_of(store: Store) -> dict[str, Part]:
    """The memory by part; keys of accounts, of API keys and of the site are the part `accounts`."""
    client: Any = store.client
    parts = {name: Part() for name in (*PARTS, "accounts")}
    cursor = -1
    while cursor:
        cursor, names = await client.scan(max(cursor, 0), count=PAGE)
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.memory_usage(name, samples=0)
            pipe.pttl(name)
        answers = await pipe.execute()
        for name, used, ttl in zip(names, answers[::2], answers[1::2], strict=True):
            part = parts[part_of(name.decode())]
            part.keys += 1
            part.expiring += ttl >= 0
            part.bytes += used or 0
            part.count += await _objects(client, name.decode())
    stats = (await client.memory_stats())["db.0"]
    for column, table in (("keys", "overhead.hashtable.main"), ("expiring", "overhead.hashtable.expires")):
        total = sum(getattr(part, column) for part in parts.values())
        for part in parts.values():
            part.bytes += stats[table] * getattr(part, column) / max(1, total)
    return parts


def part_of(key: str) -> str:
    """The part that a key belongs to."""
    return next((name for name, ends in PARTS.items() if any(_matches(key, end) for end in ends)), "accounts")


def _matches(key: str, end: str) -> bool:
    return end in key if end.endswith(":") else key.endswith(end)


async def _objects(client: Any, key: str) -> int:
    """Lines, markers, records or holds in a key."""
    if key.endswith(":lg"):
        return int(await client.xlen(key))
    if key.endswith(":rv"):
        return int(await client.hlen(key))
    return int(":st:" in key or ":id:" in key)

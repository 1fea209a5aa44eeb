"""Writes the records of a backup into an empty store. Any topology takes them: each key goes to its own server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from itertools import chain
from typing import Any

from gateway.backup.records import Part
from gateway.ledger.paging import scan_pages
from gateway.store import Store
from gateway.store.command import Argument
from gateway.store.identity import StoreIdentity

IN_FLIGHT = 500  # commands without a reply
NAMES = 1000  # names per SCAN


async def is_empty(store: Store) -> bool:
    """Whether no server has a key."""
    for link in store.links:
        async for _ in scan_pages(link, "SCAN", count=NAMES):
            return False
    return True


async def remove_everything(store: Store) -> None:
    """Remove all keys of the database, a page at a time."""
    for link in store.links:
        async for page in scan_pages(link, "SCAN", count=NAMES):
            await asyncio.gather(*(link.call("DEL", name) for name in page))


async def load(store: Store, parts: Iterable[Part]) -> None:
    """Write all parts; keys that have expired since are left out."""
    seconds, _ = await store.link("").call("TIME")
    now, sent = int(seconds) * 1000, list[Awaitable[Any]]()
    for part in parts:
        if part.expires and part.expires <= now:
            continue
        link = store.link(part.key)
        sent += [link.call(*command) for command in _commands(part)]
        if len(sent) >= IN_FLIGHT:
            await asyncio.gather(*sent)
            sent.clear()
    await asyncio.gather(*sent)


async def write_identity(store: Store, identity: StoreIdentity) -> None:
    """Write who the store is: the last step, because a gateway does not use a store without it.

    A cluster's copies are written before the one that is read first.
    """
    for key in reversed(store.identity_keys):
        fields = ["deployment", identity.deployment, "schema", str(identity.schema)]
        if identity.peppers:
            fields += ["peppers", " ".join(identity.peppers)]
        await store.link(key).call("HSET", key, *fields)


def _commands(part: Part) -> list[tuple[Argument, ...]]:
    key, values = part.key, part.values
    commands: list[tuple[Argument, ...]] = [("DEL", key)] if part.first else []
    match part.kind:
        case "string":
            commands.append(("SET", key, values[0]))
        case "hash":
            commands.append(("HSET", key, *values))
        case "set":
            commands.append(("SADD", key, *values))
        case "zset":
            pairs = zip(values[1::2], values[::2], strict=True)
            commands.append(("ZADD", key, *chain.from_iterable(pairs)))
        case "stream":
            commands += [("XADD", key, id_, *fields) for id_, fields in values]
    if part.expires:
        commands.append(("PEXPIREAT", key, part.expires))
    return commands

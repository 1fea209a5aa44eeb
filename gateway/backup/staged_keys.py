"""Keys of a backup beside the present ones of an external store, until they take their names.

A staged key has the slot of its own name, so that a cluster can rename it. The store's identity goes first and comes
last: a gateway uses no store whose keys are being replaced. Each step can be repeated: what was interrupted is
completed by `place` with the same id of the restore, which does nothing if it is complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

from gateway.backup.store_dump import STAGING
from gateway.backup.store_load import write_identity
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.ledger.paging import scan_pages
from gateway.ledger.scripts import load_script
from gateway.store import Store
from gateway.store.address import ClusterAddress
from gateway.store.connection import RedisReplyError
from gateway.store.identity import StoreIdentity
from gateway.store.link import RedisLink

STAGED = f"{STAGING}key:"
PLACING = f"{STAGING}placing"  # id of the restore that has removed the present keys, and whether it is complete
PLACED = "placed"
PROBE = f"{STAGING}probe"
NAMES = 1000  # names per SCAN
_rename_all = load_script("rename")


def staged_name(key: str) -> str:
    """The name of a key while it is staged."""
    return STAGED + (f"t:{key}" if "{" in key else f"n:{{{key}}}")


def final_name(staged: str) -> str:
    """The name that a staged key will have."""
    form, _, key = staged.removeprefix(STAGED).partition(":")
    return key if form == "t" else key[1:-1]


async def require_rename(store: Store) -> None:
    """The store's error if its user may not rename keys: better now than when the present ones are removed."""
    link = store.link(PROBE)
    await link.call("SET", PROBE, "1")
    try:
        await link.call("RENAME", PROBE, PROBE)
    finally:
        await link.call("DEL", PROBE)


async def discard(store: Store) -> None:
    """Remove all staged keys."""
    async for link, names in _pages(store, f"{STAGED}*"):
        await _delete(store, link, names)


async def place(store: Store, identity: StoreIdentity, restore_id: str) -> None:
    """Replace all keys of the store by the staged ones."""
    marker = (await store.link(PLACING).call("GET", PLACING) or b"").decode()
    if marker == f"{restore_id} {PLACED}":
        return
    if marker != restore_id:
        for key in store.identity_keys:
            await store.link(key).call("DEL", key)
        async for link, names in _pages(store, "*"):
            await _delete(store, link, [name for name in names if not name.startswith(STAGING.encode())])
        await store.link(PLACING).call("SET", PLACING, restore_id)
    while await _rename_some(store):
        pass  # a name may be missing in one scan while others are renamed
    await write_identity(store, identity)
    await store.link(PLACING).call("SET", PLACING, f"{restore_id} {PLACED}")


async def forget(store: Store) -> None:
    """Remove the mark of a restore whose keys need not be placed any more."""
    await store.link(PLACING).call("DEL", PLACING)


async def _rename_some(store: Store) -> bool:
    found = False
    async for link, names in _pages(store, f"{STAGED}*"):
        pairs = [(name.decode(), final_name(name.decode())) for name in dict.fromkeys(names)]
        if _is_cluster(store):
            await gather_bounded(_rename(link, *pair) for pair in pairs)
        else:
            for some in batches(pairs):
                await link.eval(_rename_all, list(chain.from_iterable(some)), ())
        found = True
    return found


async def _delete(store: Store, link: RedisLink, names: list[bytes]) -> None:
    if _is_cluster(store):
        await gather_bounded(link.call("DEL", name) for name in names)
    elif names:
        await link.call("DEL", *names)


def _is_cluster(store: Store) -> bool:
    """Whether one command may not name keys of several slots."""
    return isinstance(store.address, ClusterAddress)


async def _rename(link: RedisLink, staged: str, final: str) -> None:
    try:
        await link.call("RENAME", staged, final)
    except RedisReplyError as error:
        if "no such key" not in str(error):  # it has expired, or was in two pages
            raise


async def _pages(store: Store, match: str) -> AsyncIterator[tuple[RedisLink, list[Any]]]:
    for link in store.links:
        async for page in scan_pages(link, "SCAN", match=match, count=NAMES):
            yield link, page

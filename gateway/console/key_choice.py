"""The keys of an account to choose from, as far as the reader may see them."""

from __future__ import annotations

from gateway.accounts.keys import KeyRecord
from gateway.console.visit import Visit

MOST_KEYS = 200


async def keys_to_choose(visit: Visit, account: str, chosen: str = "") -> list[KeyRecord]:
    """The newest keys, and the one with the id `chosen` if it is one of the others."""
    keys = visit.store.visible_keys
    ids = list(await keys.ids(visit.actor, account))
    shown = ids[:MOST_KEYS]
    if chosen in ids[MOST_KEYS:]:
        shown.append(chosen)
    return list(await visit.store.keys.read(account, shown))

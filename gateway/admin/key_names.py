"""What people call keys: their names, or else the last four characters of their texts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.ledger.scripts import Links, slot

AT_ONCE = 100  # requests to the store


async def key_names(links: Links, ids: Sequence[str]) -> dict[str, str]:
    """The names by id; ids of no key are left out. It does not ask who may see the keys: the caller knows the ids."""
    found = list[str]()
    for start in range(0, len(ids), AT_ONCE):
        found += await asyncio.gather(*(_name(links, key_id) for key_id in ids[start : start + AT_ONCE]))
    return {key_id: name for key_id, name in zip(ids, found, strict=True) if name}


async def _name(links: Links, key_id: str) -> str:
    account = await links.link(f"ki:{key_id}").call("GET", f"ki:{key_id}")
    if account is None:
        return ""
    key = slot(account.decode())
    name, last4 = await links.link(key).call("HMGET", f"{key}:k:{key_id}", "name", "last4")
    return name.decode() if name else f"…{last4.decode()}" if last4 else ""

"""What is asked about a key by its id: its name, and the addresses that it was used from, as documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gateway.admin.times import from_micros, time_text
from gateway.ledger.gather_all import gather_bounded
from gateway.store.links import Links, slot

if TYPE_CHECKING:  # SQLAlchemy takes 0.2 s
    from gateway.history.caller_addresses import UsedFrom

AT_ONCE = 100  # requests to the store


async def key_names(links: Links, ids: Sequence[str]) -> dict[str, str]:
    """The names of keys by id, or else the last four characters of their texts; ids of no key are left out.

    It does not ask who may see the keys: the caller knows the ids.
    """
    found = await gather_bounded((_name(links, key_id) for key_id in ids), AT_ONCE)
    return {key_id: name for key_id, name in zip(ids, found, strict=True) if name}


async def _name(links: Links, key_id: str) -> str:
    account = await links.link(f"ki:{key_id}").call("GET", f"ki:{key_id}")
    if account is None:
        return ""
    key = slot(account.decode())
    name, last4 = await links.link(key).call("HMGET", f"{key}:k:{key_id}", "name", "last4")
    return name.decode() if name else f"…{last4.decode()}" if last4 else ""


def used_from_form(used: UsedFrom) -> dict[str, Any]:
    """The JSON document of an address that a key was used from."""
    first, last = (time_text(from_micros(at)) for at in (used.first, used.last))
    return {"key": used.key, "address": used.address, "first": first, "last": last}

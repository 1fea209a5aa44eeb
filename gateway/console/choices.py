"""Keys and members of an account to choose from, as far as the reader may see them."""

from __future__ import annotations

from gateway.accounts.key_record import KeyRecord
from gateway.admin.user_rows import User
from gateway.console.visit import Visit

MOST_KEYS = 200
MOST_MEMBERS = 200


async def keys_to_choose(visit: Visit, account: str, chosen: str = "") -> list[KeyRecord]:
    """The newest keys, and the one with the id `chosen` if it is one of the others."""
    keys = visit.store.key_service
    shown = list(await keys.newest_ids(visit.actor, account, MOST_KEYS))
    if chosen and chosen not in shown and await keys.has(visit.actor, account, chosen):
        shown.append(chosen)
    return list(await visit.store.keys.read(account, shown))


def sees_all(visit: Visit, account: str) -> bool:
    """Whether the reader sees the calls of all members of the account."""
    return visit.actor.may("read") or visit.actor.owns(account)


async def members_to_choose(visit: Visit, account: str, chosen: str = "") -> list[User]:
    """The first members by e-mail, and the one with the id `chosen` wherever they stand; none for other readers."""
    if not sees_all(visit, account):
        return []
    memberships = (await visit.people()).memberships
    found = await memberships.list(visit.actor, account, limit=MOST_MEMBERS)
    if len(found) < MOST_MEMBERS or not chosen or any(user.id == chosen for user in found):
        return found
    return [*found, *await memberships.list(visit.actor, account, ids=[chosen])]

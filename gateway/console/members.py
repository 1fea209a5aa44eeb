"""The members of an account to choose from, for readers who see the usage of all of them."""

from __future__ import annotations

from gateway.admin.user_rows import User
from gateway.console.visit import Visit

MOST_MEMBERS = 200


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

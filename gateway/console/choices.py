"""Keys and members of an account to choose from, as far as the reader may see them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gateway.accounts.key_record import KeyRecord
from gateway.admin.user_rows import User
from gateway.console.visit import Visit

MOST_KEYS = 200
MOST_MEMBERS = 200
MOST_MODELS = 100


async def keys_to_choose(visit: Visit, account: str, chosen: str = "") -> list[KeyRecord]:
    """The newest keys, and the one with the id `chosen` if it is one of the others."""
    keys = visit.store.key_service
    shown = list(await keys.newest_ids(visit.actor, account, MOST_KEYS))
    if chosen and chosen not in shown and await keys.has(visit.actor, account, chosen):
        shown.append(chosen)
    return list(await visit.store.keys.read(account, shown))


class OfferedModels(Struct, frozen=True):
    """Models to choose from: the chosen ones and the first others. `has_more`: others are typed by name."""

    names: list[str]
    has_more: bool


def models_to_choose(known: Iterable[str], chosen: Iterable[str] = ()) -> OfferedModels:
    """Those of the models that are offered, and the chosen ones, by name."""
    every = sorted({*known, *chosen})
    offered = {*every[:MOST_MODELS], *chosen}
    return OfferedModels([name for name in every if name in offered], len(offered) < len(every))


def chosen_models(visit: Visit) -> list[str]:
    """The models that a form of `_more_models.html` has: those with a mark and the typed ones, one a line."""
    return list(
        dict.fromkeys([*visit.texts("models"), *filter(None, map(str.strip, visit.text("more_models").split("\n")))])
    )


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

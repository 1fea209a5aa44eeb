"""Which groups the accounts of a store are in, to find groups that a configuration lacks.

::

    for problem in missing_groups(await group_use(store), settings.groups): ...

It reads one field of every account, so it is for commands and reloads, never for a request.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.listing.names import ACCOUNTS
from gateway.ledger.paging import scan_set
from gateway.store.links import Links, slot

AT_ONCE = 500  # reads in flight
EXAMPLES = 3  # names of accounts in a message


class GroupUse(Struct):
    """The number of accounts of one group, and the first of them by name."""

    accounts: int = 0
    examples: list[str] = []


async def group_use(links: Links) -> dict[str, GroupUse]:
    """Every group that has accounts."""
    names = sorted(await scan_set(links.link(ACCOUNTS), ACCOUNTS))
    found: dict[str, GroupUse] = {}
    reads = (links.link(slot(name)).call("HGET", slot(name), "group") for name in names)
    for name, group in zip(names, await gather_bounded(reads, AT_ONCE), strict=True):
        if group is None:  # a name in the index without an account
            continue
        use = found.setdefault(group.decode(), GroupUse())
        use.accounts += 1
        if len(use.examples) < EXAMPLES:
            use.examples.append(name)
    return found


def missing_groups(use: Mapping[str, GroupUse], groups: Collection[str]) -> dict[str, str]:
    """For each group with accounts that is not among `groups`, one line for the operator."""
    return {group: _complaint(group, found) for group, found in sorted(use.items()) if group not in groups}


def _complaint(group: str, use: GroupUse) -> str:
    names = ", ".join(use.examples) + (", …" if use.accounts > len(use.examples) else "")
    count = "1 account is" if use.accounts == 1 else f"{use.accounts} accounts are"
    return f"no group is named {group!r}, but {count} in it ({names}); see gateway accounts move"

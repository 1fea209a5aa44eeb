"""Accounts that begin with ledger lines of the past: those of `gateway serve --demo`.

The lines are real. They are imported, trimmed and audited as any other, and balance, keys and members agree with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct

from gateway.ledger.import_hints import send_hints
from gateway.ledger.listing.names import account_names
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

_SCRIPT = load_script("backdate")


class PastLine(Struct, frozen=True):
    """One line; `key` and `user` are the key that made the call and the user who has it."""

    at: int  # Unix time in milliseconds
    request_id: str
    kind: Literal["open", "topup", "use"]
    amount: int  # nano-units, negative for a charge
    meta: str
    key: str = ""
    user: str = ""


async def open_backdated(links: Links, account: str, group: str, lines: Sequence[PastLine]) -> bool:
    """Open an account with these lines, in the order of time, in one step; False if the account exists.

    The keys of the lines are there already.
    """
    name = slot(account)
    await account_names(links).add(account)  # before the account, as `Ledger.open` does
    fields = ((one.at, one.request_id, one.kind, one.amount, one.meta, one.key, one.user) for one in lines)
    opened: int = await links.link(name).eval(_SCRIPT, [name], [group, *map(str, chain.from_iterable(fields))])
    if opened:
        send_hints(links, [account])
    return bool(opened)

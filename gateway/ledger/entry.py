"""One settlement as it is sent, journaled and sent again; every field travels to settle.lua."""

from __future__ import annotations

from msgspec import Struct


class Entry(Struct, array_like=True):
    """A charge or a void of one call."""

    account: str
    request_id: str
    key_id: str
    kind: str  # use, void
    amount: int  # what the balance changes by: never positive
    tokens: int
    at: int  # µs, Redis time of the admission
    meta: str
    force: int = 0  # 1: the ledger has been searched, there is no line of this request

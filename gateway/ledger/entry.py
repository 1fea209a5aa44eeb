"""One settlement in the form that is sent and journaled; every field is an argument of settle.lua."""

from __future__ import annotations

from msgspec import Struct


class Entry(Struct, array_like=True):
    """A charge or a void of one call."""

    account: str
    request_id: str
    key_id: str
    kind: str  # use, void
    amount: int  # nano-units: minus the cost owed, never positive
    tokens: int
    at: int  # µs, Redis time of the admission
    meta: str
    force: int = 0  # 1: the ledger was searched and has no line of this request
    hold: int = -1  # nano-units; the most that is charged if the hold was lost. -1 in entries of older versions

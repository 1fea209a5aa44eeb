"""Who calls: the account and the key that a call is charged to."""

from __future__ import annotations

from msgspec import Struct


class ApiKey(Struct, frozen=True):
    """Who calls: an account and one of its keys."""

    account: str
    id: str
    shows_cost: bool = False  # answers tell what they cost

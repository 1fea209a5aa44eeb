"""The account and the key that a call is charged to."""

from __future__ import annotations

from msgspec import Struct


class ApiKey(Struct, frozen=True):
    """An account and one of its keys."""

    account: str
    id: str
    shows_cost: bool = False  # answers contain their cost
    scopes: str = ""  # the stored scopes that were checked for the call; see gateway.accounts.key_scopes

"""The account, the key and the user that a call is charged to."""

from __future__ import annotations

from msgspec import Struct


class ApiKey(Struct, frozen=True):
    """An account and one of its keys."""

    account: str
    id: str
    shows_cost: bool = False  # answers contain their cost
    user: str = ""  # the id of the member who has the key; empty for a service key
    scopes: str = ""  # the stored scopes that were checked for the call; see gateway.accounts.key_scopes

"""What the reader of a page may do with the keys of an account."""

from __future__ import annotations

from gateway.console.visit import Visit


def may_create(visit: Visit, account: str) -> bool:
    """Whether the reader may create keys of the account: members their own, owners and operators any."""
    return account in visit.actor.memberships or manages_keys(visit, account)


def manages_keys(visit: Visit, account: str) -> bool:
    """Whether the reader may change all keys of the account."""
    return visit.actor.may("keys", account) or visit.actor.owns(account)

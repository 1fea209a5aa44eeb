"""Rights by name: what an actor may do with the things of an account.

The scopes of tokens and the roles of people meet here. A function without `require` says whether; one with it raises
Forbidden with what is missing.
"""

from __future__ import annotations

from gateway.accounts.key_record import KeyRecord
from gateway.admin.actor import Actor
from gateway.errors import Forbidden


def manages_keys(actor: Actor, account: str) -> bool:
    """Whether the actor may create and change all keys of the account."""
    return actor.may("keys", account) or actor.owns(account)


def reads_keys(actor: Actor, account: str) -> bool:
    """Whether the actor may see all keys of the account; "" means of all accounts."""
    return actor.may_read("keys", account) or actor.owns(account)


def creates_keys(actor: Actor, account: str) -> bool:
    """Whether the actor may create keys of the account: members their own, owners and operators any."""
    return account in actor.memberships or manages_keys(actor, account)


def has_key(actor: Actor, key: KeyRecord) -> bool:
    """Whether the key is the actor's own, and they still belong to its account."""
    return is_member(actor, key.user or "", key.account)


def is_member(actor: Actor, user: str, account: str) -> bool:
    """Whether the actor is this user, and a member of the account."""
    return bool(user) and actor.kind == "user" and actor.id == user and account in actor.memberships


def require_manages_keys(actor: Actor, account: str, user: str = "") -> None:
    """Forbidden unless the actor may change keys of the account, or is the member `user` of it."""
    if not is_member(actor, user, account) and not manages_keys(actor, account):
        raise Forbidden("This needs the scope 'keys', or an owner of the account")


def require_reads_keys(actor: Actor, account: str, user: str = "") -> None:
    """Forbidden unless the actor may see the keys of the account, or is `user`, whose keys they are."""
    if not (actor.kind == "user" and actor.id == user) and not reads_keys(actor, account):
        raise Forbidden("This needs the scope 'read' or 'keys', or an owner of the account")


def manages_members(actor: Actor, account: str) -> bool:
    """Whether the actor may change members of the account, and their invitations."""
    return actor.may("users", account) or actor.owns(account)


def reads_members(actor: Actor, account: str) -> bool:
    """Whether the actor may see all members of the account."""
    return actor.may_read("users", account) or actor.owns(account)


def reads_account(actor: Actor, account: str) -> bool:
    """Whether the actor may see the ledger lines, calls and events of the account, of all its members."""
    return actor.may("read", account) or actor.owns(account)


def decides_for(actor: Actor, account: str) -> bool:
    """Whether the actor is an operator, or an owner of the account: who cancels its calls and sets its thresholds."""
    return actor.is_operator or actor.owns(account)

"""Audiences: who may open a page. What no audience permits is refused.

An account that the user may not see is not found, whether it exists or not. A page of an account that the user may see,
but that is not for them, is forbidden.
"""

from __future__ import annotations

from typing import Literal, get_args

from gateway.admin.actor import Actor
from gateway.errors import Forbidden, NotFound, NotSignedIn

#: `member`: members and owners of the account in the path. `owner`: its owners. Operators may do what both may, and
#: viewers may read it. `viewer`: viewers and operators of the site. `operator`: operators.
Audience = Literal["public", "signed_in", "member", "owner", "viewer", "operator"]

AUDIENCES: tuple[Audience, ...] = get_args(Audience)
OF_ACCOUNTS: frozenset[Audience] = frozenset({"member", "owner"})


def check_audience(audience: Audience, actor: Actor | None, account: str, *, writes: bool) -> None:
    """NotSignedIn, NotFound for an account that the actor may not see, or Forbidden; else the actor belongs to it."""
    if audience == "public":
        return
    if actor is None:
        raise NotSignedIn
    if audience in OF_ACCOUNTS and account not in actor.memberships and not actor.may("read"):
        raise NotFound(f"There is no account {account!r}")
    if not _belongs(audience, actor, account, writes=writes):
        raise Forbidden("This page is not for your role")


def _belongs(audience: Audience, actor: Actor, account: str, *, writes: bool) -> bool:
    if audience == "signed_in" or actor.is_operator:
        return True
    if not writes and actor.may("read"):
        return audience != "operator"
    if audience == "owner":
        return actor.owns(account)
    return audience == "member" and account in actor.memberships

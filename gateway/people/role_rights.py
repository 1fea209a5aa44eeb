"""What a role in an account can do, in scopes: an actor gives a role only if it can do as much.

Without this rule, a token with the scope `users` makes a user an owner. `entry_rights` has the rule about ways to
sign in.

A role that claims gave ends with them. To make it one that a person gave is a change of its own: it counts in each
session then, and stays. Who has the own right from claims alone does not do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS, SCOPES, Actor, Scope
from gateway.admin.audit_trail import record
from gateway.admin.granted import forget_granted, given_by, granted_to
from gateway.admin.rights import manages_members
from gateway.admin.user_rows import User
from gateway.database.people_tables import memberships
from gateway.errors import Forbidden
from gateway.people.makers import by_hand
from gateway.people.sessions import end_sessions_of_others

#: Owners read everything of their account, end its calls, and have its keys and members. Members have keys of their
#: own, which spend the account's money, and read the balance.
ROLE_SCOPES: Mapping[str, frozenset[Scope]] = {
    "none": frozenset(),
    "member": frozenset({"read", "keys"}),
    "owner": frozenset({"read", "accounts", "keys", "users"}),
}

#: Who gave a membership: an owner or a program of the account; an operator, the command line or a program of the site;
#: claims of a provider; the sign-up with which the account was made.
GivenBy = Literal["owner", "site", "claims", "sign-up"]


def giver_of(actor: Actor) -> GivenBy:
    """Which kind of giver a person or program is, with the rights that they have now."""
    return "site" if actor.may("users") else "owner"  # operators and the command line may, too


def note_giver(connection: Connection, user_id: str, account: str, given_by: GivenBy) -> None:
    """Note who gave a membership. What owners or claims change stays given by who is more than an owner."""
    table = memberships.c
    known = sa.and_(table.user_id == user_id, table.account == account)
    if given_by in ("owner", "claims"):
        known = sa.and_(known, table.given_by.in_(("owner", "claims")))
    connection.execute(memberships.update().where(known).values(given_by=given_by))


def require_role(actor: Actor, account: str, role: str, *, before: str = "none") -> None:
    """Forbidden unless the actor may do in the account all that the role gives, if it gives more than `before`."""
    if not actor.owns(account) and not ROLE_SCOPES[role] <= ROLE_SCOPES[before]:
        require_role_rights(actor, account, role, f"the role {role!r}")


def require_role_rights(actor: Actor, account: str, role: str, what: str) -> None:
    """Forbidden for `what` unless the actor has the scopes of the role in the account."""
    missing = [scope for scope in SCOPES if scope in ROLE_SCOPES[role] and not actor.may(scope, account)]
    if missing:
        names = " and ".join(f"'{scope}'" for scope in missing)
        raise Forbidden(f"For {what} this needs what the role allows, too: the scope {names}")


def gives_by_hand(connection: Connection, actor: Actor, account: str) -> bool:
    """Whether the actor may give roles in the account, or with "" on the site, without what claims gave to it."""
    rights = by_hand(connection, actor)
    return manages_members(rights, account) if account else rights.is_operator


def require_by_hand(connection: Connection, actor: Actor, account: str) -> None:
    """Forbidden unless `gives_by_hand`."""
    if not gives_by_hand(connection, actor, account):
        raise Forbidden(
            "A sign-in service gives this role, and gives you your own right here, too: somebody whose right a person "
            "gave makes the role permanent or lower"
        )


def require_may_pass_on(connection: Connection, actor: Actor, role: str, account: str = "") -> None:
    """Forbidden for a person whose right is of claims alone, who would give it to others for good.

    Such a person gives no role on the site, and such an owner makes nobody an owner. Operators make owners.
    """
    is_bound = role == "owner" and not actor.may("users", account) if account else role not in ("", "none")
    if is_bound and not gives_by_hand(connection, actor, account):
        raise Forbidden(
            "A sign-in service gives you your right here, so you cannot give this role to others. "
            "The service can do it, and so can somebody whose right a person gave"
        )


def may_give_claimed(connection: Connection, actor: Actor, user: User, role: str, account: str) -> bool:
    """Whether the actor may give the role, which then stays without claims.

    Not if the right of the actor comes from claims, and claims gave the user this role at the last sign-in. The caller
    has locked the user.

    For the site see `require_may_pass_on`.
    """
    claimed = [one.claimed.get(account, "") for one in granted_to(connection, user.id).values()]
    is_claimed = 0 < ROLE_RANKS[role] <= max(map(ROLE_RANKS.__getitem__, claimed), default=0)
    return not is_claimed or gives_by_hand(connection, actor, account)


def take_from_claims(connection: Connection, actor: Actor, user: User, account: str = "") -> tuple[list[str], int]:
    """Make the role of a user that of a person: the issuers whose claims gave it, and how many sessions ended.

    Those end in which the role did not count, but for that of the actor. The caller has locked the user.
    """
    issuers = given_by(connection, user, account=account)
    forget_granted(connection, user.id, account=account)
    ended = end_sessions_of_others(connection, user.id, issuers, keep=actor.session) if issuers else 0
    return issuers, ended


def keep_granted(connection: Connection, actor: Actor, user: User, account: str = "", *, giver: Actor) -> None:
    """Make a role that claims gave one that `giver` gave, with its event; nothing for any other role.

    The caller has locked the user, and has asked for the rights.
    """
    issuers, ended = take_from_claims(connection, actor, user, account)
    if not issuers:
        return
    if account:
        note_giver(connection, user.id, account, giver_of(giver))
    role = user.accounts[account] if account else user.role
    sides = {
        "before": {"role": role, "given_by": issuers},
        "after": {"role": role, "permanent": True} | ({"ended_sessions": ended} if ended else {}),
    }
    action = "members.set" if account else "users.edit"
    record(connection, actor, action, f"user:{user.id}", account=account, **sides)

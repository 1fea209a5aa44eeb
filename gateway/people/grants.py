"""What the claims of a person give: memberships and a role on the site, by the `grants` of the configuration.

A grant raises a role and never lowers one that a person of the gateway gave, which comes back with the end of the
claims. What a provider gave is remembered with
the identity, so it is taken back at the first sign-in whose claims do not give it any more. A role that another
provider gave already is remembered, too: it counts in the sessions of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS as RANKS
from gateway.admin.actor import Actor
from gateway.admin.granted import Granted, granted_to
from gateway.admin.user_rows import User, user_by_id
from gateway.config.oidc_settings import GrantSettings
from gateway.errors import LastOperator
from gateway.log import gateway_log
from gateway.people.made_by import end_made_by
from gateway.people.memberships import put_membership
from gateway.people.proofs import end_links_of_others
from gateway.people.users import edit_user


class Applied(Struct, frozen=True):
    """What is to be remembered, and the accounts that the user has to leave."""

    remembered: Granted
    left: list[str]


def granted_by(claims: Mapping[str, Any], grants: Iterable[GrantSettings]) -> Granted:
    """The highest roles that the claims give."""
    accounts: dict[str, str] = {}
    site_role = ""
    for grant in grants:
        if grant.value not in claim_values(claims, grant.claim):
            continue
        if grant.account and RANKS[grant.role] > RANKS[accounts.get(grant.account, "")]:
            accounts[grant.account] = grant.role
        if RANKS[grant.site_role] > RANKS[site_role]:
            site_role = grant.site_role
    return Granted(accounts, site_role)


def claim_values(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """The texts of a claim: one, or a list. A name with dots leads into objects, as in `realm_access.roles`."""
    found: Any = claims.get(name)
    if found is None:
        found = claims
        for step in name.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
    values = found if isinstance(found, list) else [found]
    return frozenset(value for value in values if isinstance(value, str))


def apply_grants(connection: Connection, actor: Actor, user: User, issuer: str, given: Granted) -> Applied:
    """Bring the roles of a user from what this provider gave before to what it gives now. The caller ends memberships.

    A higher role ends the open links for the user that others than operators made.
    """
    remembered, left = dict[str, str](), list[str]()
    others = granted_to(connection, user.id)
    before = others.pop(issuer)
    over = dict(before.over)  # what persons gave, where claims have raised it
    for account in sorted({*before.accounts, *given.accounts}):
        current, role = user.accounts.get(account, ""), given.accounts.get(account, "")
        is_ours = bool(current) and before.accounts.get(account) == current
        by_others = current in [one.accounts.get(account) for one in others.values()]
        if role and (is_ours or RANKS[role] > RANKS[current]):
            if current and not is_ours and not by_others:
                over[account] = current
            put_membership(connection, actor, user, account, role, given_by="claims")
            remembered[account] = role
        elif role and by_others:
            remembered[account] = role
        elif is_ours and account in over:
            put_membership(connection, actor, user, account, over.pop(account), given_by="owner")
        elif is_ours:
            left.append(account)
            remembered[account] = current  # until it has ended: the store may fail
    by_others = user.role in [one.site_role for one in others.values()]
    if not before.site_role and user.role != "none" and not by_others:
        over[""] = user.role
    site_role = _apply_site_role(connection, actor, user, before, given, by_others=by_others)
    kept = {*remembered, *([""] if site_role else [])}
    over = {name: role for name, role in over.items() if name in kept}
    _end_links_of_risen(connection, user)
    return Applied(Granted(remembered, site_role, left, over, given.accounts), left)


def _end_links_of_risen(connection: Connection, user: User) -> None:
    """`user` is the user of before."""
    now = user_by_id(connection, user.id)
    roles = [(user.role, now.role), *((user.accounts.get(name, ""), role) for name, role in now.accounts.items())]
    if any(RANKS[after] > RANKS[before] for before, after in roles):
        end_links_of_others(connection, now)


def _apply_site_role(
    connection: Connection, actor: Actor, user: User, before: Granted, given: Granted, *, by_others: bool
) -> str:
    """Set the role on the site; returns what is to be remembered."""
    is_ours = user.role != "none" and before.site_role == user.role
    if not is_ours and RANKS[given.site_role] <= RANKS[user.role]:
        return given.site_role if by_others else ""
    if given.site_role == user.role:
        return given.site_role
    try:
        edit_user(connection, actor, user.id, {"role": given.site_role or before.over.get("", "none")})
    except LastOperator:
        gateway_log.warning("%s stays an operator, although %s does not say so: it is the last", user.id, actor.id)
        if by_others:  # it counts in their sessions only
            end_made_by(connection, actor, f"user:{user.id}")
            return given.site_role
        return before.site_role
    return given.site_role

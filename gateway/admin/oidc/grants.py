"""What the claims of a person give: memberships and a role on the site, by the `grants` of the configuration.

A grant raises a role and never lowers one that a person of the gateway gave. What a provider gave is remembered with
the identity, so it is taken back at the first sign-in whose claims do not give it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.memberships import put_membership
from gateway.admin.user_rows import User
from gateway.admin.users import edit_user
from gateway.config.oidc_settings import GrantSettings
from gateway.errors import LastOperator
from gateway.log import gateway_log

RANKS = {"none": 0, "": 0, "member": 1, "owner": 2, "viewer": 1, "operator": 2}


class Granted(Struct, frozen=True):
    """Roles by account, and the role on the site or ""."""

    accounts: dict[str, str] = {}
    site_role: str = ""

    @property
    def is_something(self) -> bool:
        """Whether anything is given."""
        return bool(self.accounts or self.site_role)


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


def apply_grants(connection: Connection, actor: Actor, user: User, before: Granted, given: Granted) -> Applied:
    """Bring the roles of a user from what was given before to what is given now. The caller ends memberships."""
    remembered, left = dict[str, str](), list[str]()
    for account in sorted({*before.accounts, *given.accounts}):
        current, role = user.accounts.get(account, ""), given.accounts.get(account, "")
        is_ours = bool(current) and before.accounts.get(account) == current
        if role and (is_ours or RANKS[role] > RANKS[current]):
            put_membership(connection, actor, user, account, role)
            remembered[account] = role
        elif is_ours:
            left.append(account)
            remembered[account] = current  # until it has ended: the store may fail
    return Applied(Granted(remembered, _apply_site_role(connection, actor, user, before, given)), left)


def _apply_site_role(connection: Connection, actor: Actor, user: User, before: Granted, given: Granted) -> str:
    """Set the role on the site; returns what is to be remembered."""
    is_ours = user.role != "none" and before.site_role == user.role
    if not is_ours and RANKS[given.site_role] <= RANKS[user.role]:
        return ""
    if given.site_role == user.role:
        return given.site_role
    try:
        edit_user(connection, actor, user.id, {"role": given.site_role or "none"})
    except LastOperator:
        gateway_log.warning("%s stays an operator, although %s does not say so: it is the last", user.id, actor.id)
        return before.site_role
    return given.site_role

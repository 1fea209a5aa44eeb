"""Who acts, and what they may do."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from msgspec import Struct

from gateway.errors import Forbidden, InvalidValue

ActorKind = Literal["cli", "user", "token", "system"]
Scope = Literal["read", "accounts", "keys", "credits", "users", "config"]
SiteRole = Literal["operator", "viewer", "none"]
AccountRole = Literal["owner", "member"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
SITE_ROLES: tuple[SiteRole, ...] = get_args(SiteRole)
ACCOUNT_ROLES: tuple[AccountRole, ...] = get_args(AccountRole)
#: Roles in an account and on the site, each by what it may do.
ROLE_RANKS: Mapping[str, int] = {"": 0, "none": 0, "member": 1, "owner": 2, "viewer": 1, "operator": 2}
SITE_ONLY: frozenset[str] = frozenset({"config"})  # scopes that have no meaning for one account
EVERYTHING: frozenset[Scope] = frozenset(SCOPES)
SITE_SCOPES: Mapping[str, frozenset[Scope]] = {
    "operator": EVERYTHING,
    "viewer": frozenset({"read"}),
    "none": frozenset(),
}


class Actor(Struct, frozen=True, kw_only=True):
    """An operator on the command line, a user who is signed in, a program with an admin token, or the gateway."""

    kind: ActorKind
    id: str  # the login name of `cli`, the id of the user or token, the rule of the configuration for `system`
    scopes: frozenset[Scope] = frozenset()
    account: str = ""  # a token may be restricted to one account
    memberships: Mapping[str, str] = {}  # roles by account
    address: str = ""  # where from
    session: str = ""  # the id of a user's session; with its end the user may do nothing more

    @property
    def name(self) -> str:
        """`KIND:ID`, as the audit trail shows it."""
        return f"{self.kind}:{self.id}"

    @property
    def is_operator(self) -> bool:
        """Whether the actor may do everything. Only such an actor may give others these rights."""
        return self.scopes == EVERYTHING and not self.account

    def may(self, scope: Scope, account: str = "") -> bool:
        """Whether the scope is given, for this account; "" means for the site."""
        return scope in self.scopes and self.account in ("", account)

    def may_read(self, scope: Scope, account: str = "") -> bool:
        """Whether things of the scope may be read."""
        return self.may("read", account) or self.may(scope, account)

    def owns(self, account: str) -> bool:
        """Whether the actor is an owner of the account."""
        return bool(account) and self.memberships.get(account) == "owner"

    def require(self, scope: Scope, account: str = "") -> None:
        """Forbidden without the scope."""
        if not self.may(scope, account):
            raise Forbidden(f"This needs the scope {scope!r}")

    def require_read(self, scope: Scope, account: str = "") -> None:
        """Forbidden without the scope or `read`."""
        if not self.may_read(scope, account):
            raise Forbidden(f"This needs the scope 'read' or {scope!r}")

    def require_operator(self) -> None:
        """Forbidden for an actor who may not do everything."""
        if not self.is_operator:
            raise Forbidden("This needs an operator")


def login_name() -> str:
    """The login name of the person at the terminal, also behind sudo."""
    sudo = os.environ.get("SUDO_USER")
    if sudo and os.getuid() == 0:
        return sudo
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # a container may have users without names


def command_line(login: str) -> Actor:
    """The operator on the command line, who has the files of the gateway and may do everything."""
    return Actor(kind="cli", id=login, scopes=EVERYTHING)


def by_configuration(rule: str, address: str = "") -> Actor:
    """The gateway itself, where the configuration decides; `rule` is `sign-up` or `oidc.NAME`."""
    return Actor(kind="system", id=rule, scopes=EVERYTHING, address=address)


def checked_scopes(scopes: Iterable[str], account: str | None) -> list[Scope]:
    """The scopes in their usual order; InvalidValue for an unknown one, for none, and for one that needs the site."""
    wanted = set(scopes)
    for scope in sorted(wanted - set(SCOPES)):
        raise InvalidValue(f"{scope!r} is no scope; there are {', '.join(SCOPES)}", param="scopes")
    if not wanted:
        raise InvalidValue(f"A token has at least one scope of {', '.join(SCOPES)}", param="scopes")
    if account is not None and wanted & SITE_ONLY:
        raise InvalidValue("The scope 'config' is not possible for one account", param="scopes")
    return [scope for scope in SCOPES if scope in wanted]

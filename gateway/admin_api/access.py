"""Access rules: which actor may call a route. What no rule permits is refused.

A rule names a scope and what the route is about. The account of the object, if there is one, is looked up first, so a
token that is restricted to an account gets the same 404 for objects of other accounts and for objects that do not
exist.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway.admin.actor import Actor, Scope
from gateway.errors import Forbidden

#: What a route is about: the site; an account or key named in the path; or the accounts that the actor may see, where
#: the function itself shows only these.
Target = Literal["site", "account", "key", "visible"]


class Access(Struct, frozen=True, kw_only=True):
    """The rule of one route."""

    scope: Scope | None = None  # None: every valid token
    also: Scope | None = None  # needed beside `scope`
    target: Target = "site"
    of_site: bool = False  # not with a token that is restricted to an account, although the route is about one
    reads: bool = False  # the scope `read` suffices, too
    owners: bool = False  # owners of the account may do it, too
    operators_only: bool = False
    public: bool = False  # without a token

    @property
    def needs_site(self) -> bool:
        """Whether a token that is restricted to an account is refused, whatever its scopes are."""
        return self.of_site or self.target == "site"

    def may_ever(self, actor: Actor) -> bool:
        """Whether the actor could pass for some object; asked before any object is looked up."""
        if self.public or self.scope is None:
            return True
        if self.operators_only:
            return actor.is_operator
        if self.needs_site and actor.account:
            return False
        if self.owners and "owner" in actor.memberships.values():
            return True
        if self.also is not None and self.also not in actor.scopes:
            return False
        return self.scope in actor.scopes or (self.reads and "read" in actor.scopes)

    def may_see(self, actor: Actor, account: str) -> bool:
        """Whether objects of the account exist for the actor."""
        return actor.account == account or (not actor.account and bool(actor.scopes)) or account in actor.memberships

    def permits(self, actor: Actor, account: str = "") -> bool:
        """Whether the actor may do it to an object of the account; "" for a route without one."""
        if not self.may_ever(actor):
            return False
        if self.target not in ("account", "key") or self.scope is None:
            return True
        if self.owners and actor.owns(account):
            return True
        return actor.may_read(self.scope, account) if self.reads else actor.may(self.scope, account)

    def description(self) -> str:
        """The rule in words, for the OpenAPI document."""
        if self.operators_only:
            return "Needs a token with every scope and without an account."
        also = " or `read`" if self.reads and self.scope != "read" else f" and `{self.also}`" if self.also else ""
        site = ", of a token without an account" if self.needs_site else ""
        return f"Needs the scope `{self.scope}`{also}{site}."

    def refusal(self) -> Forbidden:
        """The 403, which names what is missing."""
        if self.operators_only:
            return Forbidden("This needs an operator, or a token with every scope and without an account")
        also = " or 'read'" if self.reads and self.scope != "read" else f" and {self.also!r}" if self.also else ""
        site = ", and no restriction to an account" if self.needs_site else ""
        return Forbidden(f"This needs the scope {self.scope!r}{also}{site}")


PUBLIC = Access(public=True)
ANY_TOKEN = Access()

"""The actions of the table in docs/admin-api.md: a request for each, about new objects, that an operator may send."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.admin_api.route import AdminRoute
from gateway.admin_api.table import ROUTES
from gateway.people.sign_in import Client
from tests.admin_api.client import ROOT, Api
from tests.admin_api.samples import Samples


class Sent(Struct, frozen=True):
    """A request; `route` is the operation of its route."""

    route: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = {}


class Actions:
    """Makes the requests over the accounts acme and other."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._samples = Samples(api)
        self._routes = {route.operation_id: route for route in ROUTES}
        self._numbers = itertools.count(1)

    async def user(self, *, role: str = "none", there: str = "", has_entered: bool = False) -> str:
        """A new user with a role on the site, or one in acme, who may have signed in."""
        people, n = await self._api.services.people(), next(self._numbers)
        user = await people.users.create(ROOT, f"someone{n}@example.com", role=role)  # type: ignore[arg-type]
        if there:
            await people.memberships.set(ROOT, user.id, "acme", there)  # type: ignore[arg-type]
        if has_entered:
            link = await people.sign_in_links.create(ROOT, user.id)
            await people.sign_in.with_link(link.token, Client())
        return user.id

    async def sample(self, operation: str, body: Any = None, **values: str) -> Sent:
        """The sample of a route, with another body, or other objects in its path."""
        route: AdminRoute = self._routes[operation]
        sample = await self._samples.of(route)
        path = route.path.format(**values) if values else sample.path
        return Sent(operation, route.method, path, sample.body if body is None else body, sample.headers)

    def new(self, name: str) -> str:
        """A name that is not used yet."""
        return f"{name}{next(self._numbers)}"


Make = Callable[[Actions], Awaitable[Sent]]


def of(operation: str, body: Any = None) -> Make:
    """The sample of a route."""
    return lambda a: a.sample(operation, body)


def limits(**body: Any) -> Make:
    return of("accounts_limit", body)


def opened(**body: Any) -> Make:
    return lambda a: a.sample("accounts_create", {"name": a.new("opened-"), **body})


def role(there: str, wanted: str) -> Make:
    async def make(a: Actions) -> Sent:
        user = await a.user(there=there)
        return await a.sample("members_set", {"role": wanted}, account="acme", user=user)

    return make


def invited(operation: str, wanted: str) -> Make:
    return lambda a: a.sample(operation, {"email": f"{a.new('guest')}@example.com", "role": wanted, "mail": False})


def of_user(operation: str, *, there: str = "", site: str = "none", has_entered: bool = False, **body: Any) -> Make:
    async def make(a: Actions) -> Sent:
        user = await a.user(role=site, there=there, has_entered=has_entered)
        filled = {name: value.format(n=a.new("to")) for name, value in body.items()}
        return await a.sample(operation, filled or None, user=user)

    return make


#: By the first column of the table.
ACTIONS: dict[str, Make] = {
    "Open an account in the group `default`, without a balance": opened(),
    "Open an account in another group": opened(group="vip"),
    "Open an account with a balance": opened(balance="1"),
    "Disable an account": of("accounts_disable"),
    "Enable an account": of("accounts_enable"),
    "Move an account to another group": of("accounts_move"),
    "Allow models to an account": of("accounts_allow"),
    "Deny models to an account": of("accounts_deny"),
    "Set or remove `rpm`, `tpm` or `concurrency` of an account": limits(rpm=100_000, tpm=None),
    "Set or remove the monthly cap of an account": limits(monthly="70"),
    "Set or remove the credit line (`floor`) of an account": limits(floor="-7"),
    "Give an account a price of its own": of("prices_set"),
    "Take an account's own price away": of("prices_clear"),
    "Credit or debit an account": of("accounts_credit"),
    "Refund a call": of("accounts_refund"),
    "Set the threshold of an account": of("notifications_set_threshold"),
    "End a running call": of("calls_cancel"),
    "Cancel a batch": of("batches_cancel"),
    "Create a key": of("keys_create"),
    "Change a key": of("keys_edit"),
    "Rotate a key": of("keys_rotate"),
    "Revoke a key": of("keys_revoke"),
    "Create a key of a member": of("member_keys_create"),
    "Set the budget of a member": of("member_keys_change_budget"),
    "Make a user a member of an account": role("", "member"),
    "Make a user or a member an owner of an account": role("member", "owner"),
    "Make an owner of an account a member": role("owner", "member"),
    "Take a user out of an account": of("members_remove"),
    "Invite a person as a member of an account": invited("members_invite", "member"),
    "Invite a person as an owner of an account": invited("members_invite", "owner"),
    "Withdraw an invitation to an account": of("members_withdraw"),
    "Invite a person to the site without a role": invited("members_invite_to_site", "none"),
    "Invite a person to the site with a role": invited("members_invite_to_site", "viewer"),
    "Create a user without a role on the site, and a link": of("users_create"),
    "Create a user with a role on the site": lambda a: a.sample(
        "users_create", {"email": f"{a.new('root')}@example.com", "role": "viewer"}
    ),
    "Rename a user": of_user("users_edit", there="owner", name="Renamed"),
    "Give a user a role on the site": of_user("users_edit", role="viewer"),
    "Mark the e-mail address of a user as proved": of_user("users_prove"),
    "Make a link for a user without an account": of_user("users_link"),
    "Make a link for a user without an account who has signed in": of_user("users_link", has_entered=True),
    "Make a link for a member of an account": of_user("users_link", there="member"),
    "Make a link for an owner of an account": of_user("users_link", there="owner"),
    "Change the e-mail of a user without an account": of_user("users_edit", email="{n}@example.com"),
    "Change the e-mail of a user without an account who has signed in": of_user(
        "users_edit", has_entered=True, email="{n}@example.com"
    ),
    "Change the e-mail of a member of an account": of_user("users_edit", there="member", email="{n}@example.com"),
    "Change the e-mail of an owner of an account": of_user("users_edit", there="owner", email="{n}@example.com"),
    "Remove the second factor of a member of an account": of_user(
        "users_edit", there="member", second_factor="removed"
    ),
    "Disable a user": of_user("users_disable", there="owner"),
    "Enable a user": of_user("users_enable", there="owner"),
    "Erase a user": of_user("users_erase", there="owner"),
    "End the sessions of a user": of_user("users_end_sessions", there="owner"),
    "End a user's connections with providers": of_user("users_end_identities", there="owner"),
    "Export what is stored about a user": of_user("users_export", there="owner"),
    "Change, disable or erase a user with a role on the site": of_user("users_disable", site="viewer"),
    "Make a link for a user with a role on the site": of_user("users_link", site="viewer"),
    "Create a token": of("tokens_create"),
    "Revoke another token": of("tokens_revoke"),
    "End the token itself": of("tokens_revoke_own"),
    "Audit the ledger": of("audits_run"),
    "Make a statement final": of("statements_make"),
    "Charge refused settlements": of("refused_book"),
    "Book superseded lines again": of("superseded_book"),
    "Acknowledge superseded lines": of("superseded_acknowledge"),
    "Import accounts": of("imports_accounts"),
    "Import keys": of("imports_keys"),
    "Import users": of("imports_users"),
    "Convert a configuration": of("imports_litellm"),
    "Check the configuration": of("configuration_check"),
    "Reload the configuration": of("configuration_reload"),
    "Deliver failed events again": of("notifications_retry"),
    "Send a test event": of("notifications_test"),
}

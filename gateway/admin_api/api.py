"""The admin API of one process: its routes, and the services and rules behind them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from typing import Protocol

from gateway.admin.actor import Actor
from gateway.admin_api.call import NOBODY, AdminCall, account_of
from gateway.admin_api.openapi import openapi_document
from gateway.admin_api.route import AdminRoute, AdminRouter
from gateway.admin_api.table import ROUTES
from gateway.errors import GatewayError, NotFound
from gateway.services.nearest import nearest_account, nearest_key, nearest_user
from gateway.services.services import AdminServices
from gateway.web.fair_turns import FairTurns
from gateway.web.handler import Surface
from gateway.web.request_limits import NEAREST
from gateway.web.window_counts import ChangeCounts

READS_AT_ONCE = 16
SHARE = 8  # of them of one token
CROWDED = "Too many of your requests are under way; wait for some of them"
MOST_CHANGES = 120  # in ten minutes, with a token of one account: as many as a person of the account
MOST_CHANGES_OF_SITE = 6000  # with a token of the site: ten in a second, more than a program makes one after the other
ALWAYS = frozenset({("DELETE", "/token")})  # a token can always be ended


@cache
def own_document() -> bytes:
    """The OpenAPI document, made at its first use."""
    return openapi_document(ROUTES)


class Authenticates(Protocol):
    """Finds who calls."""

    async def actor(self, authorization: str, address: str) -> Actor:
        """The actor of a request with this header; NotSignedIn."""


class AdminApi:
    """What the handlers share."""

    def __init__(self, services: AdminServices, authentication: Authenticates) -> None:
        self.services = services
        self.authentication = authentication
        self.router = AdminRouter(ROUTES)
        self.root_path = services.settings.console.root_path
        self.surface = Surface("the admin API", lambda: services.settings)
        self.changes = ChangeLimits()
        self.turns = FairTurns(READS_AT_ONCE, share=SHARE, refusal=CROWDED)  # of requests that read, without a limit

    def call(self, actor: Actor | None, *, account: str, operation: str) -> AdminCall:
        """A call by this actor, about an account or none."""
        return AdminCall(
            services=self.services, actor=actor or NOBODY, openapi=own_document, account=account, operation=operation
        )

    def turn(self, route: AdminRoute, actor: Actor | None) -> AbstractAsyncContextManager[None]:
        """The turn of a request. Those that write, and those that need no token, take none."""
        return nullcontext() if route.method != "GET" or actor is None else self.turns.turn_of(actor.name)

    async def check_access(self, route: AdminRoute, actor: Actor, parameters: Mapping[str, str]) -> str:
        """The account that the route is about, or "".

        Forbidden if the rule does not permit it; NotFound for an object that the actor may not see.
        """
        rule = route.access
        if not rule.may_ever(actor):
            raise rule.refusal()
        account = await account_of(self.services.store, rule.target, parameters)
        if account and not rule.may_see(actor, account):
            raise NotFound(f"no {rule.target} {parameters[rule.target]!r}")
        if not rule.permits(actor, account):
            raise rule.refusal()
        return account

    async def with_nearest(self, error: Exception, actor: Actor | None, parameters: Mapping[str, str]) -> Exception:
        """NotFound with the nearest name, for an actor who may read all names; another error as it is."""
        if not isinstance(error, NotFound) or actor is None or not (actor.may("read") or actor.is_operator):
            return error
        try:
            with self.services.places.take(NEAREST, actor.name):
                text = await self._nearest(parameters)
        except GatewayError:
            return error  # the names cannot be read now, or others are compared, which takes long
        return NotFound(f"{error.message}{text}") if text else error

    async def _nearest(self, parameters: Mapping[str, str]) -> str:
        text = ""
        if "account" in parameters:
            text = await nearest_account(self.services.store, parameters["account"])
        elif "key" in parameters:
            text = await nearest_key(self.services.store, parameters["key"])
        if not text and "@" in parameters.get("user", ""):
            text = await nearest_user((await self.services.people()).transactions, parameters["user"])
        return text


class ChangeLimits:
    """Counts the changes of a process by token."""

    def __init__(self) -> None:
        self._counts = ChangeCounts()

    def count(self, actor: Actor, route: AdminRoute) -> None:
        """Count a request that may change something; TooManyRequests."""
        if route.method != "GET" and (route.method, route.path) not in ALWAYS:
            self._counts.count(actor.name, most=MOST_CHANGES if actor.account else MOST_CHANGES_OF_SITE)

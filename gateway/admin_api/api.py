"""The admin API of one process: its routes, and the services and rules behind them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Protocol

from gateway.admin.actor import Actor
from gateway.admin.nearest import nearest_account, nearest_key, nearest_user
from gateway.admin.services import AdminServices
from gateway.admin_api.access import Access
from gateway.admin_api.call import NOBODY, Call
from gateway.admin_api.openapi import openapi_document
from gateway.admin_api.route import Route, Router
from gateway.admin_api.table import ROUTES
from gateway.errors import GatewayError, NotFound
from gateway.http_server.client_address import client_address, networks
from gateway.http_server.piecewise import RunningDownloads
from gateway.log import AccessLog


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
        self.router = Router(ROUTES)
        self.root_path = services.settings.console.root_path
        self.access_log = AccessLog()
        self.downloads = RunningDownloads()

    def call(self, actor: Actor | None, *, operation: str) -> Call:
        """A call by this actor."""
        return Call(services=self.services, actor=actor or NOBODY, openapi=own_document, operation=operation)

    def client_address(self, peer: str, forwarded_for: str) -> str:
        """The address of the client, behind the proxies that the operator trusts."""
        trusted = networks(self.services.settings.server.trusted_proxies)
        return client_address(peer, forwarded_for, trusted)

    async def check_access(self, route: Route, actor: Actor, parameters: Mapping[str, str]) -> None:
        """Forbidden if the rule does not permit it; NotFound for an object that the actor may not see."""
        rule = route.access
        if not rule.may_ever(actor):
            raise rule.refusal()
        account = await self._account_of(rule, parameters)
        if account and not rule.may_see(actor, account):
            raise NotFound(f"no {rule.target} {parameters[rule.target]!r}")
        if not rule.permits(actor, account):
            raise rule.refusal()

    async def _account_of(self, rule: Access, parameters: Mapping[str, str]) -> str:
        if rule.target == "key":
            return (await self.services.store.key_editor.show(parameters["key"])).account
        return parameters["account"] if rule.target == "account" else ""

    async def with_nearest(self, error: NotFound, actor: Actor, parameters: Mapping[str, str]) -> GatewayError:
        """The error with the nearest name, for an actor who may read all names."""
        if not actor.may("read") and not actor.is_operator:
            return error
        text = ""
        if "account" in parameters:
            text = await nearest_account(self.services.store, parameters["account"])
        elif "key" in parameters:
            text = await nearest_key(self.services.store, parameters["key"])
        if not text and "@" in parameters.get("user", ""):
            text = await nearest_user((await self.services.people()).transactions, parameters["user"])
        return NotFound(f"{error.message}{text}") if text else error

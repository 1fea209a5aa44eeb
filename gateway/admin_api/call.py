"""A call of a route: who calls, with which services, and what the answer gets beside its document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.store_services import StoreServices
from gateway.admin_api.access import Target
from gateway.errors import NotFound
from gateway.log import gateway_log

if TYPE_CHECKING:  # SQLAlchemy takes 0.2 s, and few commands need it
    from gateway.people.people import People
    from gateway.services.services import AdminServices

NOBODY = Actor(kind="token", id="")  # the actor of a route that needs no token; it may do nothing


class Stopped(Struct, frozen=True):
    """What a function returns instead of raising `error`, if only this answer can show what was done before it.

    The answer is that of the error, with `done` beside the object `error`. Clients are told not to repeat the request.
    """

    error: Exception
    done: Mapping[str, Any]


class AdminCall(Struct, kw_only=True):
    """The first argument of each route's function."""

    services: AdminServices
    actor: Actor
    openapi: Callable[[], bytes]
    account: str = ""  # that the route is about: the one in the path, or that of the key there
    operation: str = ""  # the Idempotency-Key
    replayed: bool = False  # set by the function: the operation was done before
    notes: list[str] = []  # for an operator at a terminal: what went wrong although the change was made
    unconfirmed: bool = False  # whether the change may be lost if the store fails now

    @property
    def store(self) -> StoreServices:
        """The services over the store."""
        return self.services.store

    async def people(self) -> People:
        """The services over people; DatabaseUnavailable, DatabaseRefused."""
        return await self.services.people()

    async def confirm(self) -> None:
        """Wait until the change is on the store's disk; what cannot be made sure of goes to the log."""
        for condition in await self.store.unconfirmed():
            gateway_log.warning("a change over the admin API was made, but %s", condition)
            self.unconfirmed = True

    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {"Idempotent-Replayed": "true"} if self.replayed else {}
        return headers | ({"x-gateway-unconfirmed": "true"} if self.unconfirmed else {})


async def account_of(store: StoreServices, target: Target, parameters: Mapping[str, str]) -> str:
    """The account that a path is about, "" for none; NotFound for a key that does not exist."""
    if target != "key":
        return parameters["account"] if target == "account" else ""
    account = await store.keys.account_of(parameters["key"])
    if not account:
        raise NotFound(f"no key {parameters['key']!r}")
    return account


def visible_account(call: AdminCall, wanted: str) -> str:
    """The account that is asked for, or the only one that the token may see; NotFound for another one."""
    own = call.actor.account
    if own and wanted not in ("", own):
        raise NotFound(f"no account {wanted!r}")
    return wanted or own

"""A call of a route: who calls, with which services, and what the answer gets beside its document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.people import People
from gateway.admin.services import AdminServices
from gateway.admin.store_services import StoreServices
from gateway.log import gateway_log

NOBODY = Actor(kind="token", id="")  # the actor of a route that needs no token; it may do nothing


class Stopped(Struct, frozen=True):
    """What a function returns instead of raising `error`, if only this answer can show what was done before it.

    The answer is that of the error, with `done` beside the object `error`. Clients are told not to repeat the request.
    """

    error: Exception
    done: Mapping[str, Any]


class Call(Struct, kw_only=True):
    """The first argument of each route's function."""

    services: AdminServices
    actor: Actor
    openapi: Callable[[], bytes]
    operation: str = ""  # the Idempotency-Key
    replayed: bool = False  # set by the function: the operation was done before
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
        for doubt in await self.store.doubts():
            gateway_log.warning("a change over the admin API was made, but %s", doubt)
            self.unconfirmed = True

    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        headers = {"Idempotent-Replayed": "true"} if self.replayed else {}
        return headers | ({"x-gateway-unconfirmed": "true"} if self.unconfirmed else {})

"""Requests to the admin API: what a command asks is the same on this machine and over a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from gateway.accounts import key_settings
from gateway.amounts import format_amount
from gateway.cli.root import Failure

PAGE = 1000  # objects on a page
AMOUNTS = ("balance", "amount", "floor", "monthly", *key_settings.AMOUNTS)


class AdminReply(Struct, frozen=True):
    """The document of an answer, and its headers, with names in lower case."""

    document: Any
    headers: Mapping[str, str]

    @property
    def is_repeat(self) -> bool:
        """Whether the operation was done before."""
        return self.headers.get("idempotent-replayed") == "true"


class AdminRequests(ABC):
    """The admin API as a command asks it."""

    @abstractmethod
    async def send(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        operation: str = "",
    ) -> AdminReply:
        """The answer; each part of the path is one object. Parameters of the query that are None are left out."""

    async def get(self, *path: str, **query: Any) -> Any:
        """The document at a path."""
        return (await self.send("GET", *path, query=query)).document

    async def post(self, *path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The document of the answer to a POST."""
        return (await self.send("POST", *path, body=body)).document

    async def put(self, *path: str, body: Mapping[str, Any]) -> Any:
        """The document of the answer to a PUT."""
        return (await self.send("PUT", *path, body=body)).document

    async def patch(self, *path: str, body: Mapping[str, Any]) -> Any:
        """The document of the answer to a PATCH."""
        return (await self.send("PATCH", *path, body=body)).document

    async def delete(self, *path: str) -> Any:
        """The document of the answer to a DELETE."""
        return (await self.send("DELETE", *path)).document

    async def pages(self, *path: str, most: int | None = None, **query: Any) -> list[Any]:
        """The objects of all pages of a list, or the first `most` of them."""
        found: list[Any] = []
        cursor: str | None = ""
        while cursor is not None and (most is None or len(found) < most):
            limit = PAGE if most is None else min(PAGE, most - len(found))
            page = await self.get(*path, **query, limit=limit, cursor=cursor or None)
            found += page["data"]
            cursor = page["next_cursor"]
        return found


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as a body has them; None is left out."""
    return {name: _value(name, value) for name, value in values.items() if value is not None}


def cleared(
    clear: Collection[str], values: Mapping[str, Any], *, known: Collection[str], what: str = "nothing to clear"
) -> dict[str, Any]:
    """The values as a body has them, and null for what is removed.

    Failure for a name that is not `known`, which is not `what` it should be, and for a setting that is in both.
    """
    body = written(values)
    for name in clear:
        if name not in known:
            raise Failure(f"{name!r} is {what}; known: {', '.join(known)}")
        if name in body:
            raise Failure(f"{name} cannot be set and cleared at once")
        body[name] = None
    return body


def _value(name: str, value: Any) -> Any:
    if name in AMOUNTS:
        return format_amount(value)
    return value.isoformat() if isinstance(value, datetime) else value

"""A client of the admin API for tests, and actors who need no token."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import aiohttp

from gateway.admin.actor import EVERYTHING, Actor, command_line
from gateway.errors import NotSignedIn
from gateway.services.services import AdminServices
from tests.admin_api.workers import MadeUpWorkers

ROOT = command_line("root")


class Answer:
    """An answer with its document."""

    def __init__(self, status: int, headers: Mapping[str, str], document: Any) -> None:
        self.status = status
        self.headers = headers
        self.document = document

    @property
    def error(self) -> dict[str, Any]:
        """The error in the document."""
        return dict(self.document["error"])


class NamedActors:
    """Authenticates `Bearer NAME` as the actor of this name."""

    def __init__(self, **actors: Actor) -> None:
        self.actors = actors

    async def actor(self, authorization: str, address: str) -> Actor:
        name = authorization.removeprefix("Bearer ")
        if name not in self.actors:
            raise NotSignedIn
        return self.actors[name]


class Api:
    """The services behind the API, and requests to it."""

    def __init__(
        self,
        services: AdminServices,
        session: aiohttp.ClientSession,
        url: str,
        workers: MadeUpWorkers,
        reloads: list[bool],
    ) -> None:
        self.reloads = reloads
        self.services = services
        self.workers = workers
        self.url = url
        self.token = ""  # of requests that name none
        self._session = session

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        """Send a request to a path behind `/admin/v1`."""
        token = self.token if token is None else token
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        sent |= {"Content-Type": "application/json"} if raw is not None else {}
        async with self._session.request(
            method,
            f"{self.url}/admin/v1{path}",
            json=body,
            data=raw and io.BytesIO(raw),
            headers={**sent, **(headers or {})},
        ) as response:
            is_json = response.content_type == "application/json"
            document = await response.json() if is_json else await response.text()
            return Answer(response.status, response.headers, document)

    async def get(self, path: str, **rest: Any) -> Any:
        """The document of a GET that succeeds."""
        answer = await self.ask("GET", path, **rest)
        assert answer.status == 200, answer.document
        return answer.document

    async def post(self, path: str, body: Any = None, *, key: str = "", **rest: Any) -> Any:
        """The document of a POST that succeeds."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = await self.ask("POST", path, body, headers=headers, **rest)
        assert answer.status in (200, 201), answer.document
        return answer.document

    async def make_token(self, *scopes: str, account: str | None = None, **rest: Any) -> str:
        """The text of a new token."""
        tokens = (await self.services.people()).tokens
        return (await tokens.create(ROOT, "test", scopes, account=account, **rest)).text

    async def as_operator(self) -> None:
        """Send what follows with a token that may do everything."""
        self.token = await self.make_token(*EVERYTHING)

    async def pages(self, path: str, *, cursor: str = "") -> list[Any]:
        """The objects of all pages of a list, or of those from a cursor on."""
        found: list[Any] = []
        following: str | None = cursor
        while following is not None:
            document = await self.get(f"{path}&cursor={following}")
            found += document["data"]
            following = document["next_cursor"]
        return found

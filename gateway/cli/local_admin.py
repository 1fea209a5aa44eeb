"""The admin API in the process of a command: the functions of its routes over the opened store.

The checks of queries and bodies are those of HTTP. The actor is the operator at the terminal, who may do everything. Of
the routes only the module that is asked for is imported, and of the services only those that it uses: SQLAlchemy takes
0.2 s.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import msgspec

from gateway.admin_api.call import AdminCall, account_of
from gateway.admin_api.inputs import read_body, read_query
from gateway.admin_api.route import PREFIX, AdminRouter
from gateway.cli.admin_requests import AdminReply, AdminRequests
from gateway.cli.history_database import existing_database
from gateway.cli.output import note
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.admin.transactions import Transactions
    from gateway.cli.store_session import StoreSession
    from gateway.people.people import People
    from gateway.services.services import AdminServices

#: The module of a path, by its last two names of lists, or else by its first one.
MODULES: Mapping[tuple[str, ...], str] = {
    ("accounts",): "accounts",
    ("accounts", "keys"): "keys",
    ("accounts", "members"): "members",
    ("accounts", "invitations"): "members",
    ("accounts", "prices"): "prices",
    ("members", "keys"): "member_keys",
    ("members", "budget"): "member_keys",
    ("keys",): "keys",
    ("users",): "users",
    ("users", "keys"): "member_keys",
    ("invitations",): "members",
    ("tokens",): "tokens",
    ("batches",): "batches",
    ("audit-trail",): "audits",
}


def module_of(path: tuple[str, ...]) -> str:
    """The name of the module with the route of a path."""
    names = path[::2]
    return MODULES.get(names[-2:]) or MODULES.get(names[:1], "")


class LocalAdmin(AdminRequests):
    """Requests of one command to the opened store."""

    def __init__(self, session: StoreSession, services: LocalServices) -> None:
        self._session = session
        self._services = services

    async def send(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        operation: str = "",
    ) -> AdminReply:
        """The answer; errors of the tree are raised."""
        routes = importlib.import_module(f"gateway.admin_api.resources.{module_of(path)}").ROUTES
        found = AdminRouter(routes).search(method, PREFIX + "".join(f"/{quote(part, safe='@')}" for part in path))
        if isinstance(found, Exception):
            raise found
        route, arguments = found.route, dict[str, Any](found.parameters)
        given = {name: [str(value).encode()] for name, value in (query or {}).items() if value is not None}
        if (asked := read_query(route.query, given)) is not None:
            arguments["query"] = asked
        if route.body is not None:
            arguments["body"] = read_body(route.body, msgspec.json.encode(body or {}))
        call = AdminCall(
            services=cast("AdminServices", self._services),
            actor=self._session.actor,
            openapi=bytes,  # of a route that no command asks
            account=await account_of(self._session, route.access.target, found.parameters),
            operation=operation,
        )
        document = await route.function(call, **arguments)
        for text in call.notes:
            note(text)
        if route.writes_store:
            await self._session.note_unconfirmed()
        headers = {name.lower(): value for name, value in call.headers().items()}
        return AdminReply(msgspec.json.decode(msgspec.json.encode(document)), headers)


class LocalServices:
    """The part of `AdminServices` that the routes of commands use. The database is opened at its first use."""

    def __init__(self, settings: Settings, session: StoreSession) -> None:
        self.settings = settings
        self.store = session
        self._opened = AsyncExitStack()
        self._people: People | None = None
        self._history: Transactions | None = None

    async def people(self) -> People:
        """The services over people; DatabaseRefused if the store's history is in another database."""
        if self._people is None:
            from gateway.cli.people_session import opened_people

            self._people = await self._opened.enter_async_context(opened_people(self.settings, self.store))
        return self._people

    async def history(self) -> Transactions:
        """The database for queries that read; Failure if there is none."""
        if self._history is None:
            from gateway.admin.transactions import Transactions
            from gateway.history.sql_thread import SqlThread

            database = self._opened.enter_context(existing_database(self.settings))
            self._history = Transactions(database, self._opened.enter_context(closing(SqlThread())))
        return self._history

    async def close(self) -> None:
        """Close the database."""
        await self._opened.aclose()


@asynccontextmanager
async def local_admin(settings: Settings, session: StoreSession) -> AsyncIterator[LocalAdmin]:
    """The admin API over a session, closed at the end."""
    services = LocalServices(settings, session)
    try:
        yield LocalAdmin(session, services)
    finally:
        await services.close()

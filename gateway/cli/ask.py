"""Asks the admin API: that of a server with `--server`, or else its functions over the store, which is opened for it.

::

    account = ask(settings, lambda admin: admin.get("accounts", name))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from gateway.cli.server_option import current_server
from gateway.cli.session import run

if TYPE_CHECKING:
    from gateway.cli.admin_requests import AdminRequests
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings

T = TypeVar("T")


def ask(settings: Settings, work: Callable[[AdminRequests], Awaitable[T]]) -> T:
    """Do `work` with the admin API over the opened store, or with `--server` with that of the server."""
    server = current_server()
    if server is not None:
        from gateway.cli.admin_client import over_server

        return over_server(server, work)
    from gateway.cli.local_admin import local_admin

    async def with_admin(session: StoreSession) -> T:
        async with local_admin(session.settings, session) as admin:
            return await work(admin)

    return run(settings, with_admin)

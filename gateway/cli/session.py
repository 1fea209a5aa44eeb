"""A command's way to the store: opened for the command, with or without a running gateway.

::

    async def work(session: Session) -> Account:
        return await session.accounts.show(name)

    account = run(settings, work)      # `change` if it writes: what a command says it did outlives a crash

With the embedded store it uses the running server's socket, or starts the server for the moment. Sharp edge: one of
the two may be called once per command, for it makes the event loop.
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from gateway.admin.actor import Actor, command_line
from gateway.admin.opened_store import opened_store
from gateway.admin.store_services import StoreServices
from gateway.cli.history_database import find_archived_charge
from gateway.cli.output import note
from gateway.cli.server_option import current_server
from gateway.config.settings import Settings
from gateway.store import Store

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient

T = TypeVar("T")


class Session(StoreServices):
    """What commands work with while the store is open."""

    def __init__(self, settings: Settings, store: Store) -> None:
        super().__init__(settings, store, find_archived=partial(find_archived_charge, settings, store))

    @cached_property
    def actor(self) -> Actor:
        """Who runs the command."""
        return command_line(login_name())

    async def note_doubts(self) -> None:
        """Wait as `doubts` does, and print them."""
        for doubt in await self.doubts():
            note(f"done, but {doubt}; look whether it holds")


def login_name() -> str:
    """The login name of the person at the terminal, also behind sudo."""
    sudo = os.environ.get("SUDO_USER")
    if sudo and os.getuid() == 0:
        return sudo
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # a container may have users without names


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Session]:
    """The store of these settings, closed at the end."""
    async with opened_store(settings) as store:
        yield Session(settings, store)


def run(settings: Settings, work: Callable[[Session], Awaitable[T]]) -> T:
    """Open the store, do `work`, close it; with `--server`, do it over the admin API."""
    if (server := current_server()) is not None:
        from gateway.cli.remote_session import run_remote

        return run_remote(server, work)

    async def session() -> T:
        async with opened(settings) as session:
            return await work(session)

    return asyncio.run(session())


def either(here: Callable[[], T], there: Callable[[AdminClient], Awaitable[T]]) -> T:
    """What `here` returns, or with `--server` what `there` reads from the server."""
    server = current_server()
    if server is None:
        return here()
    from gateway.cli.remote_session import run_remote

    return run_remote(server, lambda session: there(session.client))


def change(settings: Settings, work: Callable[[Session], Awaitable[T]]) -> T:
    """`run` for work that writes: when this returns it outlives a crash of the store, or a note says what is unsure."""

    async def changed(session: Session) -> T:
        answer = await work(session)
        await session.note_doubts()
        return answer

    return run(settings, changed if current_server() is None else work)

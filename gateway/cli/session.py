"""A command's way to the store: opened for the command, with or without a running gateway.

`run` opens it, and `change` for work that writes: what a command says it did outlives a crash. What the admin API
has is asked by `ask.ask`, here and over a server.

With the embedded store it uses the running server's socket, or starts the server for the moment. Sharp edge: one of
the two may be called once per command, for it makes the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from gateway.cli.server_option import current_server

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.store import Store

T = TypeVar("T")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[StoreSession]:
    """The store of these settings, closed at the end."""
    from gateway.cli.store_session import StoreSession
    from gateway.store.configured import opened_store

    async with opened_store(settings) as store:
        yield StoreSession(await _with_lists(settings, store), store)


async def _with_lists(settings: Settings, store: Store) -> Settings:
    """The settings with the models that providers list, as the running gateway has them."""
    if not settings.discovers:
        return settings
    import time

    from gateway.discovery.list_reader import read_discovered

    return (await read_discovered(store, settings, time.time())).settings


def run(settings: Settings, work: Callable[[StoreSession], Awaitable[T]]) -> T:
    """Open the store, do `work`, close it."""
    import asyncio

    async def session() -> T:
        async with opened(settings) as session:
            return await work(session)

    return asyncio.run(session())


def either(here: Callable[[], T], there: Callable[[AdminClient], Awaitable[T]]) -> T:
    """What `here` returns, or with `--server` what `there` reads from the server."""
    server = current_server()
    if server is None:
        return here()
    from gateway.cli.admin_client import over_server

    return over_server(server, there)


def change(settings: Settings, work: Callable[[StoreSession], Awaitable[T]]) -> T:
    """`run` for work that writes: when this returns it outlives a crash of the store, or a note says what is unsure."""

    async def changed(session: StoreSession) -> T:
        answer = await work(session)
        await session.note_unconfirmed()
        return answer

    return run(settings, changed)

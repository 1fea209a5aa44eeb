"""Opens the store of settings for a while, with or without a running gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.config.settings import Settings
from gateway.store import EmbeddedServer, Store
from gateway.store.address import StoreAddress
from gateway.store.configured import configured_address
from gateway.store.identity import StoreGuard
from gateway.store.known_deployment import KnownDeployment

PATIENCE = 10.0  # seconds for one answer: a person waits


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[Store]:
    """The store, closed at the end. An embedded one that no gateway serves is started, and stopped at the end."""
    async with AsyncExitStack() as stack:
        address: StoreAddress | Path | None = configured_address(settings)
        if address is None:
            address = await stack.enter_async_context(EmbeddedServer.attach_or_start(settings.data_dir))
        guard = StoreGuard(deployment=KnownDeployment(settings.data_dir).read())
        store = await Store.open(address, timeout=PATIENCE, guard=guard)
        stack.push_async_callback(store.close)
        yield store

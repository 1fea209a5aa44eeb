"""What the tests of notifications share: the parts over an empty store, and a receiver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger.import_hints import SHORT
from gateway.metrics import Metrics
from gateway.notifications.account_watch import PASS, AccountWatch
from gateway.notifications.events import Delivery
from gateway.notifications.notifier import Notifier
from gateway.notifications.queue import Queue
from tests.admin.conftest import hashes, services
from tests.databases import database, database_address
from tests.history.conftest import sql
from tests.notifications.receiver import SECRET
from tests.world import OpenWorld, World

__all__ = ["database", "database_address", "hashes", "services", "sql"]


class Notifying:
    """The queue and the watches over a world's store."""

    def __init__(self, world: World, settings: Settings) -> None:
        self.world = world
        self.settings = settings
        self.metrics = Metrics()
        self.queue = Queue(world.store)
        self.notifier = Notifier(self.queue, settings.notify, self.metrics)
        self.accounts = AccountWatch(world.store, self.notifier, settings.notify)

    async def sweep(self) -> None:
        """A whole pass over all accounts."""
        await self.world.store.client.delete("notify:sweep")
        self.accounts._next_pass = -PASS
        await self.accounts.step()
        while self.accounts._is_sweeping:
            await self.accounts.step()

    async def refuse(self, account: str) -> None:
        """What a worker's hint of a refused call does."""
        await self.world.store.client.sadd(SHORT, account)
        await self.accounts.step()

    async def deliveries(self) -> list[Delivery]:
        """What waits in the queue."""
        return [delivery for delivery, _ in await self.queue.waiting(10_000)]

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Type and data of what waits for the webhook."""
        return [(d.event.type, d.event.data) for d in await self.deliveries() if d.channel == "webhook"]

    async def types(self) -> list[str]:
        """The types of what waits for the webhook, in alphabetical order."""
        return sorted(type_ for type_, _ in await self.events())


OpenNotifying = Callable[..., AbstractAsyncContextManager[Notifying]]


def settings_of(folder: Path, url: str = "http://127.0.0.1:9/hook", **notify: Any) -> Settings:
    """A configuration with a webhook."""
    secret = folder / "secret"
    secret.write_text(SECRET)
    table = {"webhook": url, "secrets": [f"file:{secret}"], "balance_low": "5", **notify}
    mail = {"host": "127.0.0.1", "from": "gw@example.com"}
    return parse({"store": {"data_dir": str(folder / "var")}, "notify": table, "mail": mail})


@pytest.fixture
def notifying(world: OpenWorld, tmp_path: Path) -> OpenNotifying:
    """Opens the parts over an empty store; keywords are settings of [notify]."""

    @asynccontextmanager
    async def opened(**notify: Any) -> AsyncIterator[Notifying]:
        async with world() as w:
            yield Notifying(w, settings_of(tmp_path, **notify))

    return opened

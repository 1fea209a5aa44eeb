"""The notifications of one machine: watches and sender, as tasks of the importer's process.

Nothing on the way of a request waits for them. A failure of the store or a bug is logged once and the round repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Awaitable, Callable, Iterable

from gateway.config.settings import Settings
from gateway.database.engine import Database
from gateway.errors import StoreUnavailable
from gateway.history.sql_thread import SqlThread
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.notifications.account_watch import STEP, AccountWatch
from gateway.notifications.gateway_watch import GatewayWatch, RefusedWatch
from gateway.notifications.mailing import Mail
from gateway.notifications.notifier import Notifier
from gateway.notifications.owners import AccountOwners
from gateway.notifications.queue import Queue
from gateway.notifications.sender import Sender
from gateway.notifications.webhook import Webhook
from gateway.store import Store

LOOK_EVERY = 5.0  # seconds between two looks at the gateway itself
SEND_EVERY = 1.0
AFTER_A_FAILURE = 5.0


class Notifications:
    """Watches and sends until it is stopped; without [notify] it only counts refused settlements."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        metrics: Metrics,
        *,
        mail: Mail,
        open_database: Callable[[], Database],
        sql: SqlThread,
        lag: Callable[[], float | None],
    ) -> None:
        notify = settings.notify
        queue = Queue(store)
        notifier = Notifier(queue, notify, metrics)
        self._is_set_up = notify.is_set_up
        self._refused = RefusedWatch(settings.data_dir / "journal", metrics)
        self._accounts = AccountWatch(store, notifier, notify)
        self._gateway = GatewayWatch(
            store,
            queue,
            notifier,
            self._refused,
            lag=lag,
            most_lag=notify.importer_behind,
            machine=machine_of(settings),
        )
        url = settings.webhook_url
        self._webhook = Webhook(url, settings.webhook_secrets) if url is not None else None
        self._sender = Sender(
            queue,
            metrics,
            keep=notify.keep_trying,
            webhook=self._webhook,
            mail=mail if settings.mail.host else None,
            owners=AccountOwners(open_database, sql) if notify.owners else None,
        )
        self._failing: set[str] = set()

    def touch(self, accounts: Iterable[str]) -> None:
        """These accounts have new ledger lines."""
        if self._is_set_up:
            self._accounts.touch(accounts)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        parts = [self._repeat("the gateway", self._look, LOOK_EVERY, stop)]
        if self._is_set_up:
            parts += [
                self._repeat("accounts", self._accounts.step, STEP, stop),
                self._repeat("the queue of events", self._send, SEND_EVERY, stop),
            ]
        try:
            await asyncio.gather(*parts)
        finally:
            if self._webhook is not None:
                await self._webhook.close()

    async def _look(self) -> None:
        await self._refused.look()
        if self._is_set_up:
            await self._gateway.step()

    async def _send(self) -> None:
        while await self._sender.step():
            pass

    async def _repeat(self, name: str, work: Callable[[], Awaitable[None]], every: float, stop: asyncio.Event) -> None:
        while not stop.is_set():
            pause = every if await self._attempt(name, work) else AFTER_A_FAILURE
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _attempt(self, name: str, work: Callable[[], Awaitable[None]]) -> bool:
        try:
            await work()
        except StoreUnavailable as error:
            self._failed(name, error.log_text() or error.message)
            return False
        except Exception as error:
            # A task of its own: a bug here must neither end silently nor stop the import of the ledger.
            if name not in self._failing:
                gateway_log.error("events wait: %s", type(error).__name__, exc_info=error)
            self._failing.add(name)
            return False
        self._failing.discard(name)
        return True

    def _failed(self, name: str, reason: str) -> None:
        if name not in self._failing:
            gateway_log.error("events wait: looking at %s failed: %s", name, reason)
        self._failing.add(name)


def machine_of(settings: Settings) -> str:
    """A name of this machine's data directory that is the same after a restart."""
    place = f"{socket.gethostname()} {settings.data_dir}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]

"""The importer process: `python -m gateway.runtime.importer CHANNEL`, started and watched by the supervisor.

It copies ledger lines and audit events from the store into the database, and sends the notifications. It gets the
configuration over its channel, reports its metrics there, and ends at SIGTERM or when the supervisor is gone. A kill at
any moment loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import Any

import msgspec

from gateway import log
from gateway.admin.audit_mover import AuditMover
from gateway.admin.mail import SmtpMail
from gateway.config.secret import SecretError
from gateway.config.settings import Settings
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.errors import DatabaseRefused
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.log import gateway_log
from gateway.metrics import Metrics, encode_delta
from gateway.notifications.service import Notifications
from gateway.runtime.helper_process import HelperBriefing
from gateway.runtime.ipc import Channel, Message
from gateway.store import Store, StoreSetupError
from gateway.store.configured import configured_address
from gateway.store.identity import StoreGuard

REPORT_EVERY = 1.0  # seconds between reports of metrics
STORE_TIMEOUT = 5.0  # seconds; nobody waits for the importer
NICENESS = 5  # calls go before history where there is one processor for both


class ImporterRunner:
    """Runs the importer from start to stop."""

    def __init__(self, channel: socket.socket) -> None:
        self._socket = channel
        self._stop = asyncio.Event()
        self._briefing: asyncio.Future[HelperBriefing] = asyncio.get_running_loop().create_future()
        self._metrics = Metrics()

    async def run(self) -> None:
        """Import until SIGTERM."""
        self._heed_signals()
        channel = await Channel.open(self._socket, self._receive, self._stop.set)
        stopping = asyncio.create_task(self._stop.wait())
        either: set[asyncio.Future[Any]] = {stopping, self._briefing}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._briefing.done():
            await self._import(self._briefing.result(), channel)
        stopping.cancel()
        channel.close()

    async def _import(self, briefing: HelperBriefing, channel: Channel) -> None:
        settings = briefing.configuration.settings()
        log.configure(settings.log.level, form=settings.log.form, access=settings.log.access)
        store = await Store.open(
            configured_address(settings) or briefing.socket,
            timeout=STORE_TIMEOUT,
            required=False,
            guard=StoreGuard(deployment=briefing.deployment),
        )
        sql = SqlThread()
        service = HistoryService(
            store,
            lambda: open_database(settings),
            sql,
            self._metrics,
            keep_lines=settings.keep_lines,
            keep_history=settings.keep_history,
            on_touched=lambda accounts: notifications.touch(accounts),
        )
        notifications = Notifications(
            settings,
            store,
            self._metrics,
            mail=SmtpMail(settings),
            open_database=lambda: open_database(settings),
            sql=sql,
            lag=lambda: service.lag,
        )
        reporting = asyncio.create_task(self._report_forever(service, channel))
        mover = AuditMover(store, lambda: open_database(settings), sql)
        beside = [asyncio.create_task(work) for work in (mover.run(self._stop), notifications.run(self._stop))]
        try:
            await service.run(self._stop)
            await asyncio.gather(*beside)
        finally:
            reporting.cancel()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await service.close()
            sql.close()
            await store.close()
        self._report(service, channel)

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            loop.add_signal_handler(number, lambda: None)  # the supervisor handles these signals

    def _receive(self, message: Message) -> None:
        if message.name == "briefing" and not self._briefing.done():
            self._briefing.set_result(msgspec.msgpack.decode(message.payload, type=HelperBriefing))

    async def _report_forever(self, service: HistoryService, channel: Channel) -> None:
        while True:
            self._report(service, channel)
            await asyncio.sleep(REPORT_EVERY)

    def _report(self, service: HistoryService, channel: Channel) -> None:
        service.note_lag()
        delta = self._metrics.drain()
        if delta is not None:
            channel.send("counts", encode_delta(delta))


def open_database(settings: Settings) -> Database:
    """The database of the settings, with its tables up to date."""
    try:
        return Database.open(address_of(settings))
    except SecretError as error:
        raise DatabaseRefused("The address of the database cannot be read", detail=str(error)) from None


def main(argv: list[str]) -> int:
    """Entry of the importer process."""
    log.configure()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    channel = socket.socket(fileno=int(argv[0]))
    channel.set_inheritable(False)
    try:
        asyncio.run(_run(channel))
    except (StoreSetupError, OSError) as error:
        gateway_log.error("the importer cannot start: %s", error)
        return 1
    return 0


async def _run(channel: socket.socket) -> None:
    await ImporterRunner(channel).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The importer process: `python -m gateway.runtime.importer CHANNEL`, started and watched by the supervisor.

It copies ledger lines and audit events from the store into the database, and sends the notifications. It reports its
metrics over its channel. A kill at any moment loses nothing.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from gateway.admin.audit_mover import AuditMover
from gateway.admin.mail import SmtpMail
from gateway.admin.outbox import known_mark
from gateway.config.secret import SecretError
from gateway.config.settings import Settings
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.errors import DatabaseRefused
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.metrics import Metrics
from gateway.notifications.service import Notifications
from gateway.people.expired import remove_expired
from gateway.runtime import helper
from gateway.runtime.helper import Helper
from gateway.runtime.helper_process import HelperBriefing
from gateway.runtime.interpreter import collect_rarely
from gateway.store import Store


class Importer:
    """Copies from the store into the database."""

    def __init__(self, channel: socket.socket) -> None:
        self._helper = Helper("importer", channel)
        self._metrics = Metrics()

    async def run(self) -> None:
        """Import until SIGTERM."""
        await self._helper.run(self._import)

    async def _import(self, briefing: HelperBriefing, store: Store) -> None:
        collect_rarely()
        settings, stop = briefing.configuration.settings(), self._helper.stop
        sql = SqlThread()
        service = HistoryService(
            store,
            lambda: open_database(settings),
            sql,
            self._metrics,
            keep_lines=settings.keep_lines,
            keep_history=settings.keep_history,
            keep_addresses=settings.keep_addresses,
            on_touched=lambda accounts: notifications.touch(accounts),
            on_swept=remove_expired,
        )
        notifications = Notifications(
            settings,
            store,
            self._metrics,
            mail=SmtpMail(settings, self._metrics),
            open_database=lambda: open_database(settings),
            sql=sql,
            lag=lambda: service.lag,
        )
        reporting = asyncio.create_task(self._helper.report_forever(lambda: self._report(service)))
        mover = AuditMover(store, lambda: open_database(settings), sql, known_mark(settings.data_dir))
        store.on_reconnect = lambda before, now: mover.suspect() if before != now else None
        beside = [asyncio.create_task(work) for work in (mover.run(stop), notifications.run(stop))]
        try:
            await service.run(stop)
            await asyncio.gather(*beside)
        finally:
            reporting.cancel()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await service.close()
            sql.close()
        self._report(service)

    def _report(self, service: HistoryService) -> None:
        service.note_lag()
        self._helper.report(self._metrics)


def open_database(settings: Settings) -> Database:
    """The database of the settings, with its tables up to date."""
    try:
        return Database.open(address_of(settings))
    except SecretError as error:
        raise DatabaseRefused("The address of the database cannot be read", detail=str(error)) from None


async def _run(channel: socket.socket) -> None:
    await Importer(channel).run()


if __name__ == "__main__":
    sys.exit(helper.main("importer", sys.argv[1:], _run))

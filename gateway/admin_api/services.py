"""What the routes work with: the services over the store, and those over people once the database is open."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.admin.password_hashes import PasswordHashes
from gateway.admin.people import People
from gateway.admin.people_database import open_people_database
from gateway.admin.running_calls import NoWorkers, RunningCalls, Workers
from gateway.admin.store_services import StoreServices
from gateway.admin_api.audit_runs import AuditRuns
from gateway.config.settings import Settings
from gateway.database.engine import Database
from gateway.history.charges import archived_charge
from gateway.history.sql_thread import SqlThread
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.refund import ArchivedCharge
from gateway.store import Store


class AdminServices:
    """The services of one process. The database is opened at its first use; a failure is tried again at the next."""

    def __init__(self, settings: Settings, store: Store, workers: Workers | None = None) -> None:
        self.store = StoreServices(settings, store, find_archived=self._find_archived)
        self._workers = workers or NoWorkers()
        self.sql = SqlThread()
        self.audits = AuditRuns()
        self._hashes = PasswordHashes()
        self._database: Database | None = None
        self._people: People | None = None
        self._opening = asyncio.Lock()

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self.store.settings

    def use(self, settings: Settings) -> None:
        """Take over reloaded settings."""
        self.store = StoreServices(settings, self.store.store, find_archived=self._find_archived)
        if self._database is not None:
            self._renew_people(self._database)

    @property
    def running_calls(self) -> RunningCalls:
        """The running calls of this machine."""
        return RunningCalls(self._workers, self.store.outbox)

    async def people(self) -> People:
        """The services over people; DatabaseUnavailable, DatabaseRefused."""
        async with self._opening:
            if self._people is None:
                self._database = await open_people_database(self.settings, self.store.store, self.sql)
                self._renew_people(self._database)
        assert self._people is not None
        return self._people

    async def database(self) -> Database:
        """The database; DatabaseUnavailable, DatabaseRefused."""
        await self.people()
        assert self._database is not None
        return self._database

    async def _find_archived(self, account: str, request_id: str) -> ArchivedCharge | None:
        """The lines of a call that have left the store; None if none has."""
        checkpoint = await read_archive_checkpoint(self.store.store, account)
        if not checkpoint.n:
            return None
        database = await self.database()
        return await self.sql.run(partial(archived_charge, database, account, request_id, checkpoint))

    def _renew_people(self, database: Database) -> None:
        self._people = People(self.settings, database, self.sql, self.store.store, hashes=self._hashes)

    async def close(self) -> None:
        """Close the database and its thread; the store is the caller's."""
        self._hashes.close()
        if self._database is not None:
            await self.sql.run(self._database.close)
        self.sql.close()

"""The services of the console process: those over the store, and those over people once the database is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from gateway.accounts.accounts import StoreDirectory
from gateway.admin.actor import Actor
from gateway.admin.configuration_reload import AskReload, ConfigurationReload
from gateway.admin.machines import KnownMachines
from gateway.admin.mail import SmtpMail, mail_threads
from gateway.admin.mail_tasks import MailTasks
from gateway.admin.refused_settlements import RefusedSettlements
from gateway.admin.running_calls import NoWorkers, RunningCalls, Workers
from gateway.admin.store_services import StoreServices
from gateway.admin.superseded_lines import SupersededLines
from gateway.admin.transactions import Transactions
from gateway.attention.stored_facts import StoredFacts, read_facts
from gateway.attention.watch import AttentionWatch
from gateway.config.settings import Settings
from gateway.database.engine import Database
from gateway.discovery.discovered import Discovered
from gateway.history import binding
from gateway.history.reader import archived_charge, read_history, read_newest_lines
from gateway.history.sql_thread import SqlThread
from gateway.http_server.tls_state import TlsState
from gateway.ledger import LedgerLine
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.refund import ArchivedCharge
from gateway.metrics import Metrics
from gateway.people.oidc.providers import Providers
from gateway.people.password_hashes import PasswordHashes
from gateway.people.people import People
from gateway.people.people_database import open_people_database
from gateway.reports.line_pages import LinePages
from gateway.services.audit_runs import AuditRuns
from gateway.store import Store
from gateway.web.places import Places
from gateway.web.recent_answers import RecentAnswers

RELOADED_WITHIN = 5.0  # seconds

P = ParamSpec("P")
T = TypeVar("T")


class AdminServices:
    """The services of one process. The database is opened at its first use; a failure is tried again at the next."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        workers: Workers | None = None,
        *,
        ask_reload: AskReload | None = None,
        hashes: PasswordHashes | None = None,
        metrics: Metrics | None = None,
        tls: TlsState | None = None,
    ) -> None:
        self.tls = tls  # of the port of this process
        self.metrics = metrics or Metrics()  # of this process
        self._turn_to_import = asyncio.Lock()  # outlives a reload, as a running import does
        self.store = self._store_services(settings, store)
        self.discovered = Discovered(settings, settings)
        self.machines = KnownMachines(store)
        self.attention = AttentionWatch(store, self.machines, lambda: self.settings, self._stored_facts)
        self.places = Places()  # of what a person or token has few of at a time
        self._workers = workers or NoWorkers()
        self._ask_reload = ask_reload or (lambda data_dir, force: None)
        self.sql = SqlThread()
        self._reading = SqlThread()  # of reports and other long queries, which are not to delay the rest
        self.audits = AuditRuns()
        self.recent = RecentAnswers()
        self._hashes = hashes or PasswordHashes()
        self._mail_threads = mail_threads()  # outlive a reload, as the messages that wait for them do
        self._mail_tasks = MailTasks()
        self.mail = self._mail_of(settings)
        self._providers = Providers(settings)
        self._renewed = asyncio.Event()  # new settings have arrived
        self._database: Database | None = None
        self._people: People | None = None
        self._opening = asyncio.Lock()

    @property
    def settings(self) -> Settings:
        """The settings in use."""
        return self.store.settings

    def use(self, settings: Settings, found: Discovered | None = None) -> None:
        """Take over reloaded settings; `found`: with the models that providers list."""
        self.use_models(found or Discovered(settings, settings))
        self._providers.use(settings)
        self.mail = self._mail_of(settings)
        if self._database is not None:
            self._renew_people(self._database)
        self._renewed.set()

    def use_models(self, found: Discovered) -> None:
        """Take over the models that providers list."""
        if found.settings is not self.settings:
            self.store = self._store_services(found.settings, self.store.store)
        self.discovered = found

    async def reloaded(self, actor: Actor) -> bool:
        """Reload the configuration file: whether its settings have arrived here in time. Errors as of `reload`."""
        self._renewed.clear()
        await self.reload.run(actor, self.settings, force=False)
        try:
            async with asyncio.timeout(RELOADED_WITHIN):
                await self._renewed.wait()
        except TimeoutError:
            return False
        return True

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

    async def history(self) -> Transactions:
        """The database for long queries that read; DatabaseUnavailable, DatabaseRefused."""
        return Transactions(await self.database(), self._reading)

    async def read_database(
        self, function: Callable[Concatenate[Database, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function(database, …)` in the thread of long queries."""
        return await self._reading.run(function, await self.database(), *args, **kwargs)

    async def _stored_facts(self) -> StoredFacts:
        return await Transactions(await self.database(), self.sql).read(read_facts)

    @property
    def line_pages(self) -> LinePages:
        """Pages of ledger lines."""
        return LinePages(self.store.store, StoreDirectory(self.store.store), self._older_lines)

    @property
    def refused(self) -> RefusedSettlements:
        """The settlements that are set aside on this machine."""
        store = self.store
        return RefusedSettlements(
            self.settings.data_dir, store.accounts, store.ledger, store.outbox, self._lines_of_database
        )

    async def superseded(self) -> SupersededLines:
        """The lines that the store has lost; DatabaseUnavailable, DatabaseRefused."""
        store, database = self.store, await self.database()
        await binding.belong(store.store, database, self._reading)
        transactions = Transactions(database, self._reading)
        return SupersededLines(store.store, store.ledger, store.refunds, store.outbox, transactions)

    @property
    def reload(self) -> ConfigurationReload:
        """Reloads of this machine's gateway."""
        return ConfigurationReload(self.store.store, self.store.outbox, self._ask_reload)

    async def _older_lines(self, account: str, until: int, since: int, most: int) -> list[LedgerLine]:
        history = await self.history()
        return await history.read(read_newest_lines, account, until=until, since=since, most=most)

    async def _lines_of_database(self, account: str, until: int, since: int) -> list[LedgerLine] | None:
        return await self.read_database(
            lambda database: list(read_history(database, account, since=since, until=until))
        )

    async def _find_archived(self, account: str, request_id: str) -> ArchivedCharge | None:
        """The lines of a call that have left the store; None if none has."""
        checkpoint = await read_archive_checkpoint(self.store.store, account)
        if not checkpoint.n:
            return None
        database = await self.database()
        return await self.sql.run(partial(archived_charge, database, account, request_id, checkpoint))

    def _store_services(self, settings: Settings, store: Store) -> StoreServices:
        return StoreServices(settings, store, find_archived=self._find_archived, turn_to_import=self._turn_to_import)

    def _renew_people(self, database: Database) -> None:
        self._people = People(
            self.settings,
            database,
            self.sql,
            self.store.store,
            hashes=self._hashes,
            providers=self._providers,
            reading=self._reading,
            mail=self.mail,
            mail_tasks=self._mail_tasks,
        )

    def _mail_of(self, settings: Settings) -> SmtpMail:
        return SmtpMail(settings, self.metrics, threads=self._mail_threads)

    async def close(self) -> None:
        """Close the database and its thread; the store is the caller's."""
        self._hashes.close()
        await self._mail_tasks.close()
        self._mail_threads.close()
        await self._providers.close()
        await asyncio.to_thread(self._reading.close)  # it waits for a query that is still running
        if self._database is not None:
            await self.sql.run(self._database.close)
        self.sql.close()

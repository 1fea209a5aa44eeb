"""The rounds of the importer: hints, sweep, import. One process per database works at a time; others stand by.

::

    service = HistoryService(store, lambda: Database.open(address), sql, metrics, keep_lines=…, keep_history=…, …)
    await service.run(stop)      # until `stop` is set
    await service.close()

If the store or the database is away, the round is repeated: nothing is lost, because the lines stay in the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from gateway.database.engine import Database
from gateway.database.lock import LOOK_EVERY
from gateway.errors import DatabaseRefused, DatabaseUnavailable, GatewayError
from gateway.history import binding
from gateway.history.caller_addresses import address_mover, forget_late_addresses, remove_old_addresses
from gateway.history.importer import LARGE, SMALL, Importer
from gateway.history.refusals import refusal_mover
from gateway.history.retention import remove_old
from gateway.history.sql_thread import SqlThread
from gateway.history.sweep import BUSY_STEP, STEP, Sweep
from gateway.history.trim_pause import is_paused
from gateway.history.trimming import Trimmer
from gateway.ledger.import_hints import TOUCHED
from gateway.ledger.listing.names import ACCOUNTS
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.store.links import Links

HINTS = 1000  # accounts taken from the set of hints at once
MANY = (
    100  # lines of a round after which the next one may come later: a transaction with more lines costs less per line
)
HURRY = 2.0  # seconds behind after which it works without rests
REST = 2.0  # times the time of a transaction; calls need the processor meanwhile
LONGEST_REST = 0.25  # seconds
ALL_DAYS = 86_400.0  # seconds between two looks for addresses of erased users in all days
ROUND = 5.0  # seconds after which a round ends, and the lock is left free
FREE = 2 * LOOK_EVERY  # seconds that the lock is then left free at least, so that a command which waits for it gets it
PAUSES = {"database": 2.0, "refused": 30.0, "store": 1.0}  # seconds after a failed round, by cause


class _Opened:
    """What works on an opened database."""

    def __init__(self, links: Links, database: Database, sql: SqlThread, metrics: Metrics) -> None:
        self.database = database
        self.lock = database.lock("importer")
        self.importer = Importer(links, database, sql, metrics)
        self.sweep = Sweep(links, database, sql)
        self.looks_at_all_days = 0.0  # for addresses of erased users; monotonic
        self.trimmer = Trimmer(links, database, sql, metrics)
        self.refusals = refusal_mover(links, database, sql)
        self.addresses = address_mover(links, database, sql)
        self.is_bound = False


class HistoryService:
    """Keeps one database up to date with one store. `open_database` blocks, and is repeated until it succeeds."""

    def __init__(
        self,
        links: Links,
        open_database: Callable[[], Database],
        sql: SqlThread,
        metrics: Metrics,
        *,
        keep_lines: timedelta,
        keep_history: timedelta,
        keep_addresses: timedelta,
        on_touched: Callable[[Iterable[str]], None] = lambda accounts: None,
        on_swept: Callable[[Database], None] = lambda database: None,
    ) -> None:
        self._links = links
        self._open = open_database
        self._sql = sql
        self._metrics = metrics
        self._keep_lines = keep_lines
        self._keep_history = keep_history
        self._keep_addresses = keep_addresses
        self._on_touched = on_touched  # gets accounts that have new lines
        self._on_swept = on_swept  # blocks; called after each sweep
        self._opened: _Opened | None = None
        self._behind_since: float | None = None  # monotonic
        self._is_standby = False
        self._left_free = time.monotonic()  # when the lock was left free for a while
        self._failure = ""  # the cause of the last round's failure

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set."""
        while not stop.is_set():
            pause = self._with_free_lock(await self.attempt())
            self.note_lag()
            try:
                async with asyncio.timeout(pause):
                    await stop.wait()
            except TimeoutError:
                continue

    async def attempt(self) -> float:
        """One round; returns the seconds until the next one is due."""
        try:
            pause = await self._locked_round()
        except DatabaseRefused as error:
            return self._failed("refused", error)
        except DatabaseUnavailable as error:
            return self._failed("database", error)
        except GatewayError as error:  # of the store: it is away, or refuses a command
            return self._failed("store", error)
        self._metrics.set("gateway_database_up", (), 1.0)
        if self._failure:
            gateway_log.info("the importer works again")
            self._failure = ""
        return pause

    def _with_free_lock(self, pause: float) -> float:
        """The pause, of a busy importer now and then a longer one: it would take the lock again at once."""
        now = time.monotonic()
        if pause < FREE and now - self._left_free < ROUND:
            return pause
        self._left_free = now
        return max(pause, FREE)

    @property
    def lag(self) -> float | None:
        """Seconds since the database last had every known line; None while another process imports."""
        if self._is_standby:
            return None
        return 0.0 if self._behind_since is None else time.monotonic() - self._behind_since

    def note_lag(self) -> None:
        """Set the metric of the lag."""
        self._metrics.set("gateway_importer_lag_seconds", (), self.lag or 0.0)

    async def close(self) -> None:
        """Close the database."""
        if self._opened is not None:
            await self._sql.run(self._opened.database.close)

    async def _locked_round(self) -> float:
        if self._opened is None:
            self._opened = _Opened(self._links, await self._sql.run(self._open), self._sql, self._metrics)
        opened = self._opened
        if opened.database.is_gone:
            self._opened = None
            await self._sql.run(opened.database.close)
            raise DatabaseRefused("The file of the database was removed or replaced")
        if not await self._sql.run(opened.lock.take):
            self._behind_since, self._is_standby = None, True  # another process imports
            return STEP
        self._is_standby = False
        try:
            await self._check_binding(opened)
            return await self._round(opened)
        finally:
            await self._sql.run(opened.lock.release)

    async def _check_binding(self, opened: _Opened) -> None:
        if not opened.is_bound:
            await binding.bind(self._links, opened.database, self._sql)
            opened.is_bound = True
        binding.check(await binding.remembered(self._links), opened.database)

    async def _round(self, opened: _Opened) -> float:
        importer, has_more, imported = opened.importer, False, 0
        if importer.waiting < HINTS:  # else it is behind, and what it has in memory is to stay bounded
            hints = await self._links.link(TOUCHED).call("SPOP", TOUCHED, HINTS)
            has_more = len(hints) == HINTS
            touched = [account.decode() for account in hints]
            importer.add(touched)
            self._on_touched(touched)
            if opened.sweep.is_due:
                await self._sweep_step(opened)
        if importer.waiting and self._behind_since is None:
            self._behind_since = time.monotonic()
        until = time.monotonic() + ROUND
        while importer.waiting and time.monotonic() < until:
            imported += await self._import_portion(importer)
        if importer.waiting:
            return 0.0
        self._behind_since = None
        if opened.trimmer.waiting and not await is_paused(self._links):
            await opened.trimmer.trim(before=await self._oldest_kept(), until=until)
        await opened.refusals.move_due()
        await opened.addresses.move_due()
        if has_more:
            return 0.0
        return BUSY_STEP if imported >= MANY else STEP

    async def _import_portion(self, importer: Importer) -> int:
        """Import a part of what waits, and rest if there is more, unless the database is behind."""
        if (self.lag or 0.0) > HURRY:
            return await importer.step(LARGE)
        began = time.monotonic()
        imported = await importer.step(SMALL)
        if importer.waiting:
            await asyncio.sleep(min((time.monotonic() - began) * REST, LONGEST_REST))
        return imported

    async def _sweep_step(self, opened: _Opened) -> None:
        found = await opened.sweep.step(before=await self._oldest_kept())
        opened.importer.add_behind(found.differing)
        opened.trimmer.add(found.aged)
        if found.finished:
            self._metrics.set("gateway_accounts_below", ("zero",), float(found.below_zero))
            self._metrics.set("gateway_accounts_below", ("floor",), float(found.below_floor))
            await remove_old(self._links, opened.database, self._sql, self._keep_history)
            await self._sql.run(remove_old_addresses, opened.database, self._keep_addresses)
            is_due = time.monotonic() >= opened.looks_at_all_days
            await self._sql.run(lambda: forget_late_addresses(opened.database, of_all_days=is_due))
            if is_due:
                opened.looks_at_all_days = time.monotonic() + ALL_DAYS
            await self._sql.run(self._on_swept, opened.database)

    async def _oldest_kept(self) -> int:
        """The moment before which lines leave the store, in Unix milliseconds of the store's clock."""
        seconds, _ = await self._links.link(ACCOUNTS).call("TIME")
        return (int(seconds) - int(self._keep_lines.total_seconds())) * 1000

    def _failed(self, cause: str, error: GatewayError) -> float:
        self._is_standby = False
        if self._behind_since is None:
            self._behind_since = time.monotonic()
        self._metrics.inc("gateway_importer_failures", (cause,))
        if cause != "store":  # then the round may have ended before it needed the database
            self._metrics.set("gateway_database_up", (), 0.0)
        if self._failure != cause:
            text = error.log_text()
            gateway_log.error("the importer waits: %s", f"{error.message} ({text})" if text else error.message)
            self._failure = cause
        return PAUSES[cause]

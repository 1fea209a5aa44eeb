"""Imports accounts: copies their new ledger lines into the database, several accounts in one transaction.

Exactly once: (account, sequence) is unique, and the import state changes by compare-and-set in the same transaction. A
process that is killed at any point leaves either all of a transaction or nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping

from gateway.database.engine import Database
from gateway.errors import DatabaseUnavailable, GatewayError, StoreUnavailable
from gateway.history.appending import Unstorable, append
from gateway.history.forks import resolve_fork
from gateway.history.group_spend import GroupSpend
from gateway.history.import_state import ImportConflict, ImportState, read_states
from gateway.history.new_lines import Blocked, Forked, NewLines, read_new_lines
from gateway.history.sql_thread import SqlThread
from gateway.ledger.scripts import Links, slot
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.store.connection import RedisReplyError

TOGETHER = 100  # accounts in one transaction
LINES = 4000  # new lines that a transaction is to have at most, spread over its accounts
MIN_PAGE, MAX_PAGE = 50, 1000  # lines of one account per read; 1000 take about 2 ms of Redis's time
NAMED = 1000  # blocked accounts that are remembered by name, so that each reason is logged once


class Importer:
    """Imports accounts of one store into one database; the caller sees to it that the two belong together."""

    def __init__(self, links: Links, database: Database, sql: SqlThread, metrics: Metrics) -> None:
        self._links = links
        self._database = database
        self._sql = sql
        self._metrics = metrics
        self._blocked: dict[str, str] = {}
        self._waiting: deque[str] = deque()  # accounts that are not imported to their end
        self._queued: set[str] = set()
        self._missing: dict[str, int] = {}  # lines that waiting accounts are known to lack
        self._spend = GroupSpend(links, metrics)

    @property
    def waiting(self) -> int:
        """The number of accounts that are known to have lines to import."""
        return len(self._waiting)

    def add(self, accounts: Iterable[str]) -> None:
        """Import these accounts at the next step."""
        for account in accounts:
            if account not in self._queued:
                self._queued.add(account)
                self._waiting.append(account)

    def add_behind(self, missing: Mapping[str, int]) -> None:
        """`add` accounts with the number of lines that the database lacks."""
        self._missing.update(missing)
        self.add(missing)
        self._count_missing()

    async def step(self) -> int:
        """Import a part of what waits, in one transaction; returns the number of lines.

        DatabaseUnavailable if the database is; the accounts then still wait. An account whose server is unreachable
        waits for its next hint, or for the sweep.
        """
        accounts = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
        self._queued.difference_update(accounts)
        try:
            return await self._import(accounts)
        except DatabaseUnavailable:
            self.add(accounts)
            raise
        except ImportConflict:
            self.add(accounts)  # another process was faster; read again
            return 0

    async def _import(self, accounts: list[str]) -> int:
        states = await self._sql.run(self._read_states, accounts)
        most = min(max(LINES // max(len(accounts), 1), MIN_PAGE), MAX_PAGE)
        reads = (self._read(account, states.get(account), most) for account in accounts)
        batch = [part for part in await asyncio.gather(*reads) if part is not None and part.lines]
        await self._spend.learn_groups([part.start.account for part in batch])
        imported = await self._append(batch)
        for account in accounts:
            if account not in self._blocked:
                self._missing.pop(account, None)
        self.add_behind({part.start.account: await self._left(part) for part in batch if part.more})
        if imported:
            self._metrics.inc("gateway_importer_lines", (), imported)
        return imported

    async def _left(self, part: NewLines) -> int:
        """The lines of an account behind those that were just imported."""
        key = slot(part.start.account)
        try:
            last = await self._links.link(key).call("HGET", key, "seq")
        except GatewayError:
            return 0  # the next read says what is wrong
        return max(0, int(last or 0) - part.lines[-1].n)

    def _count_missing(self) -> None:
        self._metrics.set("gateway_importer_lag_lines", (), float(sum(self._missing.values())))

    async def _append(self, batch: list[NewLines]) -> int:
        if not batch:
            return 0
        try:
            imported = await self._sql.run(append, self._database, batch)
            self._spend.count(batch)
            return imported
        except Unstorable as error:
            if len(batch) == 1:
                self._block(batch[0].start.account, f"the database cannot hold a line: {error}")
                return 0
        return sum([await self._append([part]) for part in batch])  # the other accounts are not to wait for one

    def _read_states(self, accounts: list[str]) -> dict[str, ImportState]:
        with self._database.reading() as connection:
            return read_states(connection, accounts)

    async def _read(self, account: str, state: ImportState | None, most: int) -> NewLines | None:
        """The new lines; None if there is nothing that can be imported now."""
        try:
            new = await read_new_lines(self._links, account, state, most=most)
        except StoreUnavailable:
            return None
        except RedisReplyError as error:
            self._block(account, f"the store refuses to read its ledger: {error.detail}")
            return None
        except Blocked as reason:
            self._block(account, str(reason))
            return None
        except Forked:
            assert state is not None
            await self._resolve(state)
            return None
        if self._blocked.pop(account, None) is not None:
            self._count_blocked()
        return new

    async def _resolve(self, state: ImportState) -> None:
        """Move the lines that the store has lost, and import the account again."""
        account = state.account
        try:
            moved = await resolve_fork(self._links, self._database, self._sql, state)
        except StoreUnavailable:
            return  # the next hint, or the sweep
        except (Blocked, ValueError, LookupError) as reason:
            self._block(account, str(reason))
            return
        except ImportConflict:
            moved = 0
        if moved:
            self._metrics.inc("gateway_importer_forks")
            gateway_log.error(
                "the store has lost the last lines of %s: %d lines of the database were superseded", account, moved
            )
        self.add([account])

    def _block(self, account: str, reason: str) -> None:
        if self._blocked.get(account) == reason:
            return
        if account in self._blocked or len(self._blocked) < NAMED:
            self._blocked[account] = reason
            gateway_log.error("the ledger of %s cannot be imported: %s", account, reason)
            self._count_blocked()

    def _count_blocked(self) -> None:
        self._metrics.set("gateway_importer_blocked", (), float(len(self._blocked)))

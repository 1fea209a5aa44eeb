"""Imports accounts: copies their new ledger lines into the database, several accounts in one transaction.

Exactly once: (account, sequence) is unique, and the import state changes by compare-and-set in the same transaction. A
process that is killed at any point leaves either all of a transaction or nothing.

The states that this process has written are remembered. Another process may have changed them meanwhile: then the
compare-and-set fails, or the lines of the store do not continue the state. In both cases, and when the sweep finds a
difference, the state is read from the database before anything is concluded from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from gateway.database.engine import Database
from gateway.errors import DatabaseUnavailable, GatewayError, StoreUnavailable
from gateway.history.appending import Unstorable, append
from gateway.history.forks import resolve_fork
from gateway.history.group_spend import GroupSpend
from gateway.history.import_state import ImportConflict, ImportState, read_states
from gateway.history.new_lines import PAGE, Blocked, Forked, NewLines, read_new_lines, request_lines
from gateway.history.sql_thread import SqlThread
from gateway.ledger.gather_all import gather_bounded, outcomes_bounded
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.store.connection import RedisReplyError
from gateway.store.links import Links, slot

MIN_PAGE, MAX_PAGE = 20, PAGE  # lines of one account per read
REMEMBERED = 10_000  # states in memory, of the accounts that were imported last; about 6 MB
NAMED = 1000  # blocked accounts that are remembered by name, so that each reason is logged once


class Portion(Struct, frozen=True):
    """What one transaction imports at most."""

    accounts: int
    lines: int  # spread over the accounts
    at_once: int  # lines that the store is asked for at once; 100 take 0.2 ms of its time, in which no call has it


# A small one takes about 15 ms of CPU. A large one takes 100 ms, and less per line.
SMALL, LARGE = Portion(accounts=50, lines=500, at_once=100), Portion(accounts=250, lines=4000, at_once=4000)


class Importer:
    """Imports accounts of one store into one database; the caller has checked that the two belong together."""

    def __init__(self, links: Links, database: Database, sql: SqlThread, metrics: Metrics) -> None:
        self._links = links
        self._database = database
        self._sql = sql
        self._metrics = metrics
        self._blocked: dict[str, str] = {}
        self._waiting: deque[str] = deque()  # accounts that are not imported to their end
        self._queued: set[str] = set()
        self._missing: dict[str, int] = {}  # lines that waiting accounts are known to lack
        self._states: dict[str, ImportState] = {}  # what this process wrote last, the oldest first
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
        """`add` accounts that differ from the store, with the number of lines that the database lacks."""
        for account in missing:
            self._states.pop(account, None)
        self._add_missing(missing)

    def _add_missing(self, missing: Mapping[str, int]) -> None:
        self._missing.update(missing)
        self.add(missing)
        self._metrics.set("gateway_importer_lag_lines", (), float(sum(self._missing.values())))

    async def step(self, portion: Portion = LARGE) -> int:
        """Import a part of what waits, in one transaction; returns the number of lines.

        DatabaseUnavailable if the database is; the accounts then still wait. An account whose server is unreachable
        waits for its next hint, or for the sweep.
        """
        accounts = [self._waiting.popleft() for _ in range(min(portion.accounts, len(self._waiting)))]
        self._queued.difference_update(accounts)
        try:
            return await self._import(accounts, portion)
        except DatabaseUnavailable:
            self.add(accounts)
            raise
        except ImportConflict:  # another process was faster; read again
            for account in accounts:
                self._states.pop(account, None)
            self.add(accounts)
            return 0

    async def _import(self, accounts: list[str], portion: Portion) -> int:
        states = await self._known_states(accounts)
        most = max(portion.lines // max(len(accounts), 1), MIN_PAGE)
        page = min(most, portion.at_once, MAX_PAGE)
        batch = []
        step = max(portion.at_once // page, 1)
        for start in range(0, len(accounts), step):
            parts = await self._read_all(accounts[start : start + step], states, most, page)
            batch += [part for part in parts if part is not None and part.lines]
        await self._spend.learn_groups([part.start.account for part in batch])
        imported = await self._append(batch)
        for account in accounts:
            if account not in self._blocked and account not in self._queued:
                self._missing.pop(account, None)
        self._add_missing({part.start.account: await self._left(part) for part in batch if part.more})
        if imported:
            self._metrics.inc("gateway_importer_lines", (), imported)
        return imported

    async def _known_states(self, accounts: list[str]) -> dict[str, ImportState]:
        """The states as far as there are any: those that are remembered, and others from the database."""
        known = {account: self._states[account] for account in accounts if account in self._states}
        unknown = [account for account in accounts if account not in known]
        return known | await self._sql.run(self._read_states, unknown) if unknown else known

    def _remember(self, states: Iterable[ImportState]) -> None:
        for state in states:
            self._states.pop(state.account, None)
            self._states[state.account] = state
        for account in list(islice(self._states, max(0, len(self._states) - REMEMBERED))):
            del self._states[account]

    async def _left(self, part: NewLines) -> int:
        """The lines of an account behind those that were just imported."""
        key = slot(part.start.account)
        try:
            last = await self._links.link(key).call("HGET", key, "seq")
        except GatewayError:
            return 0  # the next read says what is wrong
        return max(0, int(last or 0) - part.lines[-1].n)

    async def _append(self, batch: list[NewLines]) -> int:
        if not batch:
            return 0
        try:
            self._remember(await self._sql.run(append, self._database, batch))
            self._spend.count(batch)
            return sum(len(part.lines) for part in batch)
        except Unstorable as error:
            if len(batch) == 1:
                self._block(batch[0].start.account, f"the database cannot hold a line: {error}")
                return 0
        return sum([await self._append([part]) for part in batch])  # the other accounts are not to wait for one

    def _read_states(self, accounts: list[str]) -> dict[str, ImportState]:
        with self._database.reading() as connection:
            return read_states(connection, accounts)

    async def _read_all(
        self, accounts: Sequence[str], states: Mapping[str, ImportState], most: int, page: int
    ) -> list[NewLines | None]:
        """`_read` of each account. The first pages, each of `page` lines, are read in one round trip.

        New accounts need further round trips and are read side by side. A task for each other one would cost more.
        """
        requests = (request_lines(self._links, account, states.get(account), page=page) for account in accounts)
        pages = dict(zip(accounts, await outcomes_bounded(requests), strict=True))
        old, new = [one for one in accounts if one in states], [one for one in accounts if one not in states]
        parts = [await self._read(account, states[account], pages[account], most, page) for account in old]
        return parts + await gather_bounded(self._read(account, None, pages[account], most, page) for account in new)

    async def _read(
        self, account: str, state: ImportState | None, first: list[Any] | BaseException, most: int, page: int
    ) -> NewLines | None:
        """The new lines, of which `first` is the first page; None if there is nothing that can be imported now."""
        try:
            if isinstance(first, BaseException):
                raise first
            new = await read_new_lines(self._links, account, state, most=most, page=page, first=first)
        except StoreUnavailable:
            return None
        except RedisReplyError as error:
            self._block(account, f"the store refuses to read its ledger: {error.detail}")
            return None
        except (Blocked, Forked) as reason:
            if self._states.pop(account, None) is not None:  # the state may be older than the database's
                self.add([account])
            elif isinstance(reason, Blocked):
                self._block(account, str(reason))
            else:
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

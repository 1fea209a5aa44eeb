"""Removes ledger lines from the store that are in the database and old enough; the archive checkpoint keeps their sums.

Lines leave a page at a time, by a compare-and-set of the checkpoint: a process that was stopped meanwhile and goes on
changes nothing. A page leaves only if the hash chain over all lines up to its end is the one in the database, and after
the database's commits survive a power failure. Sharp edge: a settlement may come after its marker has expired. It is
then looked up in the stream, so lines stay there for at least 25 hours.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.errors import StoreUnavailable
from gateway.history.sql_thread import SqlThread
from gateway.ledger.archive_checkpoint import OK, ArchiveCheckpoint, advance, read_archive_checkpoint
from gateway.ledger.line import LedgerLine, read_line
from gateway.ledger.scripts import load_script
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.store.connection import RedisReplyError
from gateway.store.links import Links, slot

PAGE = 500  # lines per script: 0.2 ms of Redis's time


class Trimmer:
    """Trims the accounts that the sweep has found."""

    def __init__(self, links: Links, database: Database, sql: SqlThread, metrics: Metrics) -> None:
        self._links = links
        self._database = database
        self._sql = sql
        self._metrics = metrics
        self._script = load_script("trim")
        self._waiting: set[str] = set()

    @property
    def waiting(self) -> int:
        """The number of accounts to trim."""
        return len(self._waiting)

    def add(self, accounts: Iterable[str]) -> None:
        """Trim these accounts at the next time."""
        self._waiting.update(accounts)

    async def trim(self, *, before: int, until: float) -> None:
        """Remove lines older than `before`, in Unix milliseconds; begin no account after `until`, in monotonic time."""
        if not await self._sql.run(self._database.make_durable):
            return
        while self._waiting and time.monotonic() < until:
            account = self._waiting.pop()
            try:
                await self._trim(account, before)
            except StoreUnavailable:
                continue  # the next sweep finds it again
            except (RedisReplyError, ValueError, LookupError) as error:
                gateway_log.error("old lines of %s stay in the store: %s", account, error)

    async def _trim(self, account: str, before: int) -> None:
        checkpoint = await read_archive_checkpoint(self._links, account)
        while True:
            lines = [line for line in await self._first(account) if line.milliseconds < before]
            after = _advanced(checkpoint, lines)
            if after is None or not await self._sql.run(self._has, account, after):
                return
            code = await advance(self._links, self._script, account, before=checkpoint, after=after)
            if code != OK:
                return  # another process has trimmed it, or the store has another line now, which the importer finds
            self._metrics.inc("gateway_importer_trimmed", (), after.n - checkpoint.n)
            checkpoint = after
            if len(lines) < PAGE:
                return

    async def _first(self, account: str) -> list[LedgerLine]:
        key = slot(account)
        page = await self._links.link(key).call("XRANGE", f"{key}:lg", "-", "+", "COUNT", PAGE)
        return [read_line(account, id_, fields) for id_, fields in page]

    def _has(self, account: str, after: ArchiveCheckpoint) -> bool:
        """Whether the database has the same lines up to the checkpoint."""
        columns = ledger_lines.c
        query = sa.select(columns.hash).where(columns.account == account, columns.seq == after.n)
        with self._database.reading() as connection:
            found = connection.scalar(query)
        return found is not None and found.hex() == after.hash


def _advanced(checkpoint: ArchiveCheckpoint, lines: list[LedgerLine]) -> ArchiveCheckpoint | None:
    """The checkpoint after these lines; None if there are none, or if they do not continue it."""
    after = checkpoint.copy()
    for line in lines:
        if line.n != after.n + 1 or line.balance != after.balance + line.amount:
            return None
        after.add(line)
    return after if lines else None

"""The ledger lines of an account, newest first: from the store, and before those from the database."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from msgspec import Struct

from gateway.database.engine import Database
from gateway.database.tables import ledger_lines
from gateway.history.line_row import LINE_COLUMNS, line_of
from gateway.history.sql_thread import SqlThread
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine, read_line
from gateway.ledger.scripts import Links, slot


class LinePosition(Struct, frozen=True):
    """Where a page ends: the number of its last line, the line's id in the store, and the balance before it."""

    n: int
    id: str
    opening: int  # nano-units

    @classmethod
    def of(cls, line: LedgerLine) -> LinePosition:
        """The position of a line."""
        return cls(line.n, line.id, line.balance - line.amount)


class AccountLines:
    """Reads pages of ledger lines."""

    def __init__(self, links: Links, database: Database, sql: SqlThread) -> None:
        self._links = links
        self._database = database
        self._sql = sql

    async def newest(
        self, account: str, *, before: LinePosition | None = None, since: datetime | None = None, limit: int
    ) -> list[LedgerLine]:
        """At most `limit` lines older than `before` and not older than `since`, newest first.

        If the oldest lines are neither in the store nor in the database, the last line is the sum of them.
        """
        start = int(since.timestamp() * 1000) if since else 0
        found = await self._from_store(account, before, start, limit)
        last = LinePosition.of(found[-1]) if found else before
        if len(found) < limit and (last is None or last.n > 1):
            found += await self._sql.run(self._from_database, account, last, start, limit - len(found))
            last = LinePosition.of(found[-1]) if found else last
        if len(found) < limit and since is None and last is not None and last.n > 1:
            found.append(ArchiveCheckpoint(last.n - 1, last.id, last.opening).line(account))
        return found

    async def _from_store(self, account: str, before: LinePosition | None, start: int, limit: int) -> list[LedgerLine]:
        key = slot(account)
        newest = "+" if before is None else f"({before.id}"
        call = self._links.link(key).call
        page = await call("XREVRANGE", f"{key}:lg", newest, str(start), "COUNT", limit)
        return [read_line(account, id_, fields) for id_, fields in page]

    def _from_database(self, account: str, before: LinePosition | None, start: int, limit: int) -> list[LedgerLine]:
        columns = ledger_lines.c
        query = sa.select(*(columns[name] for name in LINE_COLUMNS)).where(
            columns.account == account, columns.at >= start * 1000
        )
        if before is not None:
            query = query.where(columns.seq < before.n)
        with self._database.reading() as connection:
            return [line_of(row) for row in connection.execute(query.order_by(columns.seq.desc()).limit(limit))]

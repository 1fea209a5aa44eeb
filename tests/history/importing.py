"""An importer that a test drives round by round, and what it reads from the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.tables import import_state, ledger_lines, usage_daily, usage_hourly, usage_site_daily
from gateway.history import sweep
from gateway.history.line_row import line_of
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.ledger import LedgerLine
from gateway.ledger.import_hints import TOUCHED
from gateway.metrics import Metrics
from tests.world import World


class Importing:
    """A service over a world's store; `round` lets it do all it knows of."""

    def __init__(self, world: World, database: Database, sql: SqlThread, metrics: Metrics, **rest: Any) -> None:
        self.world = world
        self.database = database
        self.metrics = metrics
        rest = {
            "keep_lines": timedelta(hours=48),
            "keep_history": timedelta(days=2555),
            "keep_addresses": timedelta(days=30),
            **rest,
        }
        links = rest.pop("links", world.store)
        self.service = HistoryService(links, lambda: database, sql, metrics, **rest)

    async def hint(self, *accounts: str) -> None:
        """What a worker's hints do."""
        await self.world.store.client.sadd(TOUCHED, *accounts)

    async def round(self) -> None:
        """Rounds until nothing is left that it knows of."""
        while await self.service.attempt() == 0.0:
            pass

    async def sweep(self) -> None:
        """A whole pass of the sweep, and what follows from it."""
        if self.service._opened is None:
            await self.service.attempt()
        assert self.service._opened is not None
        ours = self.service._opened.sweep
        ours._began = -sweep.PASS - 1e9
        while ours.is_due:
            await self.service.attempt()
        await self.round()

    async def all(self, *accounts: str) -> None:
        """Hints of these accounts, and a round."""
        await self.hint(*accounts)
        await self.round()

    def count(self, metric: str, *labels: str) -> float:
        """The counts of a metric so far in this process."""
        return self.metrics._counters.get((metric, labels), 0.0)

    def lines(self, account: str = "acme") -> list[LedgerLine]:
        """The lines in the database."""
        query = sa.select(ledger_lines).where(ledger_lines.c.account == account).order_by(ledger_lines.c.seq)
        with self.database.reading() as connection:
            return [line_of(row) for row in connection.execute(query)]

    def state(self, account: str = "acme") -> Any:
        """The import state's row, or None."""
        query = sa.select(import_state).where(import_state.c.account == account)
        with self.database.reading() as connection:
            return connection.execute(query).one_or_none()

    def sums(self, table: sa.Table = usage_hourly) -> list[dict[str, Any]]:
        """The rows of a rollup, with what is not zero or empty."""
        with self.database.reading() as connection:
            rows = connection.execute(sa.select(table).order_by(*table.primary_key.columns)).mappings()
            return [{name: value for name, value in row.items() if value} for row in rows]

    def totals(self, measure: str = "cost") -> tuple[int, int, int]:
        """The sum of a measure in each rollup."""
        with self.database.reading() as connection:
            sums = [
                int(connection.scalar(sa.select(sa.func.sum(table.c[measure]))) or 0)
                for table in (usage_hourly, usage_daily, usage_site_daily)
            ]
        return sums[0], sums[1], sums[2]

    async def in_store(self, account: str = "acme") -> list[LedgerLine]:
        """The lines in the store."""
        return [line async for line in self.world.ledger.lines(account)]

    async def same(self, account: str = "acme") -> None:
        """The database has the store's lines, each once and with the chain of hashes; and so do the sums."""
        before, charged = "", 0
        found = self.lines(account)
        for line, stored in zip(found, await self.in_store(account), strict=True):
            assert (line.n, line.id, line.request_id, line.amount, line.meta_text) == (
                stored.n,
                stored.id,
                stored.request_id,
                stored.amount,
                stored.meta_text,
            )
            before = stored.chained(before)
            assert line.hash == before
            charged -= line.amount if line.kind in ("use", "reclaim") else 0
        state = self.state(account)
        assert (state.last_seq, state.balance, state.total) == (
            found[-1].n,
            found[-1].balance,
            sum(line.amount for line in found),
        )

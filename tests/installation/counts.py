"""What a request costs in counts that are the same in each run: commands and bytes of the store, SQL, bytes sent.

The store counts the commands of scripts, too. SQLite counts the steps of its virtual machine: a query that reads
many rows and returns one has many. They are counted by the hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from redis.asyncio import Redis
from sqlalchemy import event

STEPS = 100  # of SQLite's virtual machine between two calls


class Counts(Struct, frozen=True):
    """The costs of one request."""

    commands: int  # of the store, those within scripts included
    store_bytes: int  # that the store sent
    statements: int  # of SQL
    sql_steps: int  # hundreds
    sent: int  # bytes of the answer


def least(several: Sequence[Counts]) -> Counts:
    """The least of each count."""
    return Counts(**{name: min(getattr(counts, name) for counts in several) for name in Counts.__struct_fields__})


#: What is added to each count before two are compared, so that one more of few is no growth.
FLOORS = Counts(commands=10, store_bytes=3_000, statements=5, sql_steps=20, sent=3_000)


class Counter:
    """Counts what the store and the database do."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.statements = 0
        self.sql_steps = 0

    @contextmanager
    def attached(self, engine: sa.Engine) -> Iterator[None]:
        """Count what this engine does within the block."""
        event.listen(engine, "before_cursor_execute", self._statement)
        event.listen(engine, "checkout", self._checkout)
        try:
            yield
        finally:
            event.remove(engine, "before_cursor_execute", self._statement)
            event.remove(engine, "checkout", self._checkout)

    async def begin(self) -> None:
        """Count from here on."""
        await self._client.config_resetstat()
        self.statements = self.sql_steps = 0

    async def end(self, sent: int) -> Counts:
        """What was counted, with the bytes of the answer."""
        told = await self._client.info("all")
        commands = sum(said["calls"] for name, said in told.items() if name.startswith("cmdstat_"))
        return Counts(
            commands=commands,
            store_bytes=int(told["total_net_output_bytes"]),
            statements=self.statements,
            sql_steps=self.sql_steps,
            sent=sent,
        )

    def _statement(self, *details: Any) -> None:
        self.statements += 1

    def _checkout(self, connection: Any, *details: Any) -> None:
        connection.set_progress_handler(self._step, STEPS)

    def _step(self) -> int:
        self.sql_steps += 1
        return 0

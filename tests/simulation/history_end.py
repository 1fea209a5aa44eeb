"""The SQL database of a world, in memory, and the importers that write to it.

Each process has its own `Database` and its own lock; all of them share the data, as with one server. A transaction is
whole for the others, and a process may die, or the data may be replaced, before it and after it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import StaticPool

from gateway.database import migrate
from gateway.database.address import DatabaseAddress
from gateway.database.engine import WRITES, Database
from gateway.database.tables import import_state, ledger_lines, meta
from gateway.errors import DatabaseUnavailable
from gateway.history import binding
from gateway.history.line_row import line_of
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.ledger import LedgerLine
from gateway.metrics import Metrics
from gateway.store import Store
from tests.simulation.processes import CURRENT, Process

if TYPE_CHECKING:
    from tests.simulation.world import World

P = ParamSpec("P")
T = TypeVar("T")
USUAL = 0.002  # seconds of a call of the database
OLD = 3.0  # seconds after which lines leave the store, in the worlds that trim
KEPT = timedelta(days=2555)


_failing: list[str] = []  # whether each of the next commits fails "before" or "after" it is made


@cache
def _engine() -> sa.Engine:
    """One connection for all worlds of a process: what SQLAlchemy has compiled is kept with it."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _explicit(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "commit")
    def _commit(connection: sa.Connection) -> None:
        if _failing and connection.get_execution_options().get(WRITES):
            if _failing.pop(0) == "after":
                connection.connection.dbapi_connection.commit()  # type: ignore[union-attr]
            raise sa.exc.OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    return engine


@cache
def _empty() -> bytes:
    """A database with its tables and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gateway.db"
        Database.open(DatabaseAddress(file=path)).close()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = DELETE")  # memory has no write-ahead log
        data = connection.serialize()
        connection.close()
    return data


class _Lock:
    """The lock of importers; its holder's death frees it."""

    def __init__(self, end: HistoryEnd) -> None:
        self._end = end

    def take(self) -> bool:
        """Take it if it is free."""
        holder = self._end.locked_by
        if holder is not None and holder is not CURRENT.get() and holder.alive:
            return False
        self._end.locked_by = CURRENT.get()
        return True

    def release(self) -> None:
        """Release it, if it is held."""
        if self._end.locked_by is CURRENT.get():
            self._end.locked_by = None


class WorldDatabase(Database):
    """The database as one process has opened it."""

    def __init__(self, end: HistoryEnd) -> None:
        with _engine().connect() as connection:
            id_ = connection.scalar(sa.select(meta.c.value).where(meta.c.key == migrate.ID))
        super().__init__(DatabaseAddress(file=Path("/history")), _engine(), str(id_))
        self._end, self._files = end, end.files

    def lock(self, name: Any) -> _Lock:
        return _Lock(self._end)

    @property
    def is_gone(self) -> bool:
        return self._files != self._end.files

    def make_durable(self) -> bool:
        return True

    def close(self) -> None:
        """The connection stays for the others."""


class _Sql:
    """Calls of the database from one process; they take a time, and the database may be away."""

    def __init__(self, end: HistoryEnd) -> None:
        self._end = end

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in a moment; its result is known a moment later."""
        end = self._end
        await asyncio.sleep(end.dice.expovariate(1 / USUAL))
        if end.clock.passed < end.away_until:
            raise DatabaseUnavailable(detail="the database is away")
        result = function(*args, **kwargs)
        await asyncio.sleep(end.dice.expovariate(1 / USUAL))
        return result


class HistoryEnd:
    """The database, and what may happen to it."""

    def __init__(self, world: World) -> None:
        self.dice, self.clock = world.dice, world.clock
        self.trims = world.dice.random() < 0.3
        self.away_until = 0.0  # seconds of the clock
        self.files = 1  # how many files the database has been
        self.locked_by: Process | None = None
        self.metrics = Metrics()
        _failing.clear()
        self._use(_empty())

    async def serve(self, store: Store) -> None:
        """What an importer process does, until it is killed."""
        keep = timedelta(seconds=OLD) if self.trims else timedelta(hours=48)
        service = HistoryService(
            store, self.open, self.sql(), self.metrics, keep_lines=keep, keep_history=KEPT, keep_addresses=KEPT
        )
        await service.run(asyncio.Event())

    def open(self) -> WorldDatabase:
        """The database for the running process."""
        return WorldDatabase(self)

    def sql(self) -> SqlThread:
        """Its calls from the running process."""
        return cast("SqlThread", _Sql(self))

    def fail_commits(self, *when: str) -> None:
        """Let the next commits fail "before" or "after" they are made."""
        _failing.extend(when)

    def heal(self) -> None:
        """Every fault ends."""
        self.away_until = 0.0
        _failing.clear()

    async def attach_if_forgotten(self, store: Store) -> None:
        """What an operator does after the store has lost the moment in which it took this database."""
        if not await binding.remembered(store):
            await binding.attach(store, self.open(), self.sql())

    def copied(self) -> bytes:
        """Its data at this moment."""
        return self._raw().serialize()

    def replace(self, data: bytes, *, file: bool) -> None:
        """Older data; `file`: importers see that it is another file, otherwise the same server has them."""
        self._use(data)
        self.files += file

    def _use(self, data: bytes) -> None:
        self._raw().deserialize(data)

    def _raw(self) -> sqlite3.Connection:
        with _engine().connect() as connection:
            return cast("sqlite3.Connection", connection.connection.dbapi_connection)

    def lines(self, account: str) -> list[LedgerLine]:
        """The lines in the database."""
        query = sa.select(ledger_lines).where(ledger_lines.c.account == account).order_by(ledger_lines.c.seq)
        with _engine().connect() as connection:
            return [line_of(row) for row in connection.execute(query)]

    def is_behind(self, account: str, number: bytes) -> bool:
        """Whether it lacks lines of an account, whose last one has this number, or has others."""
        query = sa.select(import_state.c.last_seq).where(import_state.c.account == account)
        with _engine().connect() as connection:
            return b"%d" % (connection.scalar(query) or 0) != number

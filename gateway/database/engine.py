"""An opened database. Transactions are short and explicit; a failure of the server or the disk is one kind of error."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import ConnectionPoolEntry

from gateway.database import migrate
from gateway.database.address import DatabaseAddress
from gateway.database.lock import Lock, Name, held, lock_of
from gateway.database.tables import meta
from gateway.errors import DatabaseRefused, DatabaseUnavailable

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    Insert = postgresql.Insert | sqlite.Insert

CACHE_KIB = 16_384  # of each connection; the rest of a large file is in the system's cache, which all processes share
BUSY_MS = 10_000  # milliseconds a statement waits for another process's transaction (SQLite)
CONNECT_WITHIN = 5  # seconds
ANSWER_WITHIN = 15  # seconds without an acknowledgement after which a connection counts as broken (PostgreSQL)
MIGRATE_WITHIN = 600.0  # seconds that another process's migration may take
WRITES, DURABLE = "gateway_writes", "gateway_durable"

#: PostgreSQL's codes of a transaction that it undid because of another one: a serialization failure, a deadlock.
UNDONE = frozenset({"40001", "40P01"})
ATTEMPTS = 5  # of a transaction that is undone each time
PAUSE = 0.05  # seconds at most after the first of them; after the second twice as many, and so on

T = TypeVar("T")


class Database:
    """One database, with its tables at this program's version. Its methods block."""

    def __init__(self, address: DatabaseAddress, engine: Engine, id_: str) -> None:
        self.address = address
        self.engine = engine
        self.id = id_
        self._inode = _inode(address)

    @classmethod
    def open(cls, address: DatabaseAddress, *, migrate_tables: bool = True) -> Database:
        """Connect, and run the missing migrations; an SQLite file is created if it is missing.

        DatabaseUnavailable if it is unreachable. DatabaseRefused if it is newer than this program, or, without
        `migrate_tables`, older.
        """
        with errors_translated():
            engine = _engine(address)
        try:
            with errors_translated():
                if migrate_tables:
                    _migrate(engine, address)
                with engine.connect() as connection:
                    if migrate.version_of(connection) != "current":
                        raise DatabaseRefused("The database is older than this program; `gateway serve` upgrades it")
                    id_ = connection.scalar(sa.select(meta.c.value).where(meta.c.key == migrate.ID))
        except BaseException:
            engine.dispose()
            raise
        return cls(address, engine, str(id_))

    @staticmethod
    def version_at(address: DatabaseAddress) -> migrate.TablesVersion:
        """Which tables an existing database has; the errors are those of `open`. Nothing is changed."""
        with _connected(address) as connection:
            return migrate.version_of(connection)

    @staticmethod
    def is_newer_at(address: DatabaseAddress) -> bool:
        """Whether an existing database has tables that this program does not know; DatabaseUnavailable."""
        with _connected(address) as connection:
            revision = migrate.revision_of(connection)
        return bool(revision) and not migrate.is_known(revision)

    @staticmethod
    @contextmanager
    def transaction_at(address: DatabaseAddress) -> Iterator[Connection]:
        """A transaction on a PostgreSQL database, whatever tables it has; DatabaseUnavailable."""
        with _connected(address) as connection, connection.begin():
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees the database at one moment."""
        with errors_translated(), self._connect(writes=False) as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[Connection]:
        """A transaction that is committed at the end of the block. A broken constraint is an `IntegrityError`.

        `durable`: it outlives a power failure, for what is nowhere else. PostgreSQL's transactions do so always.
        """
        with errors_translated(), self._connect(writes=True, durable=durable) as connection, connection.begin():
            yield connection

    def write(self, function: Callable[[Connection], T]) -> T:
        """Call `function` in a durable transaction that writes, and again if the server undid it for another one.

        So the function changes nothing but what is in the database. The other one has ended or goes on by then.
        Among many at once it may be undone again: it is called ATTEMPTS times, with a random pause between them.
        """
        return self._write(function, is_kept=True)

    def rehearse(self, function: Callable[[Connection], object]) -> None:
        """Call `function` as `write` does, and undo what it wrote: its error says whether the change is refused."""
        self._write(function, is_kept=False)

    def _write(self, function: Callable[[Connection], T], *, is_kept: bool) -> T:
        def call() -> T:
            with self._connect(writes=True, durable=is_kept) as connection, connection.begin() as transaction:
                result = function(connection)
                if not is_kept:
                    transaction.rollback()
                return result

        with errors_translated():
            for attempt in range(1, ATTEMPTS):
                try:
                    return call()
                except sa.exc.OperationalError as error:
                    if getattr(error.orig, "sqlstate", None) not in UNDONE:
                        raise
                    time.sleep(random.random() * attempt * PAUSE)  # noqa: S311 - spreads attempts, guards nothing
            return call()

    def _connect(self, *, writes: bool, durable: bool = False) -> Connection:
        connection = self.engine.connect()
        if self.address.file is not None:
            return connection.execution_options(**{WRITES: writes, DURABLE: durable})
        return connection.execution_options(isolation_level="READ COMMITTED" if writes else "REPEATABLE READ")

    def lock(self, name: Name) -> Lock:
        """A lock over this database; DatabaseUnavailable if it cannot be asked for."""
        return _TranslatedLock(lock_of(self.engine, self.address.file, name))

    @property
    def is_gone(self) -> bool:
        """Whether the SQLite file was removed or replaced: what is written to it now is lost with this process."""
        return _inode(self.address) != self._inode

    def make_durable(self) -> bool:
        """Let what was committed survive a power failure; False if it cannot be done now.

        PostgreSQL does so at each commit. SQLite in WAL mode does so when it moves its log into the file.
        """
        if self.address.file is None:
            return True
        with errors_translated(), self.engine.connect() as connection:
            cursor = connection.connection.cursor()  # not in a transaction
            busy, *_ = cursor.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
            cursor.close()
        return not busy

    def insert(self, table: sa.Table) -> Insert:
        """An INSERT that has `on_conflict_do_update`."""
        if self.address.file is not None:
            from sqlalchemy.dialects import sqlite

            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # 0.08 s

        return postgresql.insert(table)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class _TranslatedLock:
    """A lock whose failures are errors of the gateway."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def take(self) -> bool:
        """Take it if it is free."""
        with errors_translated():
            return self._lock.take()

    def release(self) -> None:
        """Release it, if it is held."""
        self._lock.release()


@contextmanager
def errors_translated() -> Iterator[None]:
    """Failures of the server, the connection or the disk are DatabaseUnavailable; faults of the code stay."""
    try:
        yield
    except (sa.exc.IntegrityError, sa.exc.DataError, sa.exc.ProgrammingError):
        raise
    except sa.exc.DBAPIError as error:
        raise DatabaseUnavailable(detail=f"{type(error.orig).__name__}: {_one_line(error.orig)}") from None
    except (sa.exc.TimeoutError, OSError) as error:
        raise DatabaseUnavailable(detail=_one_line(error)) from None


def _inode(address: DatabaseAddress) -> int:
    """The SQLite file's number; 0 if there is no file."""
    try:
        return address.file.stat().st_ino if address.file is not None else 0
    except OSError:
        return 0


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


@contextmanager
def _connected(address: DatabaseAddress) -> Iterator[Connection]:
    """A connection of its own, whatever tables there are."""
    with errors_translated():
        engine = _engine(address)
    try:
        with errors_translated(), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _migrate(engine: Engine, address: DatabaseAddress) -> None:
    with engine.connect() as connection:
        if migrate.version_of(connection) == "current":
            return
    with held(lock_of(engine, address.file, "migration"), within=MIGRATE_WITHIN):
        writes = {} if address.file is None else {WRITES: True}
        with engine.connect().execution_options(**writes) as connection, connection.begin():
            migrate.upgrade(connection)


def _engine(address: DatabaseAddress) -> Engine:
    if address.file is not None:
        return _sqlite_engine(address)
    try:
        return sa.create_engine(
            address.url,
            pool_size=2,
            max_overflow=4,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": CONNECT_WITHIN,
                "application_name": "model-gateway",
                "keepalives_idle": ANSWER_WITHIN // 3,
                "keepalives_interval": ANSWER_WITHIN // 3,
                "keepalives_count": 2,
                "tcp_user_timeout": ANSWER_WITHIN * 1000,
            },
        )
    except ModuleNotFoundError:
        raise DatabaseRefused(
            'PostgreSQL needs the package psycopg: pip install "model-gateway[postgres]"',
        ) from None
    except (sa.exc.ArgumentError, ValueError):
        raise DatabaseRefused("The database's address is not a postgresql:// URL") from None


def _sqlite_engine(address: DatabaseAddress) -> Engine:
    assert address.file is not None
    address.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only a new file is opened here: to close a descriptor of a file ends all locks that the process has on it. Other
    # processes would then remove the write-ahead log while connections of this one still write to it.
    with suppress(FileExistsError):
        os.close(os.open(address.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(address.file)))
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _set_pragmas(connection: Any, record: ConnectionPoolEntry) -> None:
    """WAL: readers and the writer do not wait for each other. NORMAL: a power failure loses only lines that the store
    still has; `_begin` sets FULL for other writes."""
    connection.isolation_level = None  # `_begin` begins transactions; the module would commit before DDL
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {BUSY_MS}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"cache_size = -{CACHE_KIB}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """A writer takes the lock at once: an upgrade in the middle of a transaction could not wait for it."""
    options = connection.get_execution_options()
    writes = options.get(WRITES)
    if writes:
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if options.get(DURABLE) else 'NORMAL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

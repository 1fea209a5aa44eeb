"""Locks over one database: `migration` while its tables change, `importer` while a process writes history.

PostgreSQL: an advisory lock of a session, which ends with its connection. SQLite: flock on a file beside the database,
which ends with its process. Both therefore survive no crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from gateway.errors import DatabaseUnavailable

Name = Literal["migration", "importer"]

LOOK_EVERY = 0.05  # seconds
_NUMBERS: dict[Name, int] = {"migration": 7_205_181, "importer": 7_205_182}  # any two numbers of our own


class Lock(Protocol):
    """A lock that one process at a time holds."""

    def take(self) -> bool:
        """Take it if it is free; False if another process holds it."""

    def release(self) -> None:
        """Release it, if it is held."""


class FileLock:
    """flock on a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Take it if it is free."""
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        """Release it, if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class AdvisoryLock:
    """An advisory lock of PostgreSQL, on a connection of its own."""

    def __init__(self, engine: Engine, name: Name) -> None:
        self._engine = engine
        self._number = _NUMBERS[name]
        self._connection: Connection | None = None

    def take(self) -> bool:
        """Take it if it is free."""
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            taken = bool(connection.scalar(sa.select(sa.func.pg_try_advisory_lock(self._number))))
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        if not taken:
            connection.close()
            return False
        self._connection = connection
        return True

    def release(self) -> None:
        """Release it, if it is held; a broken connection has released it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.scalar(sa.select(sa.func.pg_advisory_unlock(self._number)))
        except sa.exc.DBAPIError:
            connection.invalidate()
        finally:
            connection.close()


def lock_of(engine: Engine, file: Path | None, name: Name) -> Lock:
    """The lock `name` of a database; `file` is that of SQLite."""
    if file is not None:
        return FileLock(file.with_name(f"{file.name}.{name}"))
    return AdvisoryLock(engine, name)


@contextmanager
def held(lock: Lock, *, within: float) -> Iterator[None]:
    """Hold a lock in the block; DatabaseUnavailable if another process keeps it for `within` seconds."""
    deadline = time.monotonic() + within
    while not lock.take():
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(detail=f"another process keeps the database's lock for {within:.0f} s")
        time.sleep(LOOK_EVERY)
    try:
        yield
    finally:
        lock.release()

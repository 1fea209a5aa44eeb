"""Restores a backup: checks it whole, finds out what the restore undoes, restores it, audits it, puts it in place.

Nothing is replaced before the new data are whole: see `gateway.backup.stage` and `gateway.backup.replacement`. What is
replaced on this machine, the embedded store, the SQLite file, the journals and the pepper, moves to
`data_dir/before-restore-<time>`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.accounts.pepper import NAME as PEPPER_FILE
from gateway.accounts.pepper import find_peppers
from gateway.admin.outbox import MARK_FILE as AUDIT_MARK
from gateway.backup import BackupError
from gateway.backup.interruption import Interruption, in_thread
from gateway.backup.manifest import PEPPER, STORE, Manifest, read_manifest, verify_files
from gateway.backup.newer_state import Undone, undone_in_database, undone_in_store
from gateway.backup.records import read_records
from gateway.backup.replacement import (
    Replacement,
    finish,
    opened_external,
    read_replacement,
    remove_stage,
    restore_lock,
)
from gateway.backup.saved_state import SavedState, read_saved_state
from gateway.backup.sql_load import check_kind, has_rows, replace_tables
from gateway.backup.stage import NAME as STAGE
from gateway.backup.stage import Stage, audit, opened
from gateway.backup.staged_keys import discard, require_rename, staged_name
from gateway.backup.store_dump import STAGING
from gateway.backup.store_load import is_empty
from gateway.config.settings import Settings
from gateway.database.address import FILE as DATABASE
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.errors import DatabaseUnavailable
from gateway.ledger import AuditReport
from gateway.ledger.gather_all import Progress, unwatched
from gateway.ledger.known_accounts import NAME as KNOWN_ACCOUNTS
from gateway.setup.explained_errors import explained
from gateway.store import EmbeddedServer, Store
from gateway.store.configured import configured_address
from gateway.store.embedded.home import ServerHome
from gateway.store.fault import StoreInUse
from gateway.store.identity import DEPLOYMENT_FILE, SCHEMA, known_deployment

REPLACED = ("journal", KNOWN_ACCOUNTS, DEPLOYMENT_FILE, AUDIT_MARK)
SQLITE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")
STAGED = ("store", *SQLITE_FILES, KNOWN_ACCOUNTS, DEPLOYMENT_FILE, PEPPER_FILE)  # beside the journals
UNTOUCHED = "nothing was replaced, the data are as before"
NEXT_COMMAND = "the next command with this data directory finishes it"


class _Unfinished(BackupError):
    """The restore is decided, and something failed after that."""


class Restored(Struct):
    """The `gateway restore` document."""

    deployment: str
    begun: str  # when the backup was begun
    accounts: int
    keys: int
    lines: int
    history_lines: int
    journals: int  # files that were added
    pepper: bool  # whether there is a pepper for the store's keys now
    replaced: str  # the folder with what was there before; empty for none
    undone: Undone
    audit: AuditReport

    def json_form(self) -> dict[str, Any]:
        """The JSON document."""
        form: dict[str, Any] = msgspec.to_builtins(self)
        return form | {"audit": self.audit.json_form()}


class Restore:
    """One restore of one folder. `force` replaces what is there; `keep_database` leaves the database as it is."""

    def __init__(
        self, settings: Settings, folder: Path, *, force: bool, keep_database: bool, progress: Progress = unwatched
    ) -> None:
        self._progress = progress
        self._settings = settings
        self._data_dir = settings.data_dir
        self._folder = folder
        self._force = force
        self._keep_database = keep_database
        self._embedded = configured_address(settings) is None
        self._address = address_of(settings)
        self._interruption = Interruption()

    async def run(self) -> Restored:
        """Do it. BackupError if it is refused or has failed, which changes nothing, or if it is not finished yet."""
        manifest = await in_thread(self._check_backup)
        with self._interruption.watched():
            saved = await in_thread(lambda: read_saved_state(read_records(self._folder / STORE)))
            if saved.records != manifest.store.records:
                raise BackupError(
                    f"{self._folder / STORE} has {saved.records} records instead of {manifest.store.records}"
                )
            undone = await self._look(manifest, saved, datetime.fromisoformat(manifest.begun))
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with restore_lock(self._data_dir):
                await finish(self._settings)  # what a restore before this one has left
                return await self._replace(manifest, undone)

    async def _replace(self, manifest: Manifest, undone: Undone) -> Restored:
        stage = Stage(self._data_dir / STAGE, self._folder, manifest, self._progress)
        try:
            with self._failures_explained():
                journals, report = await self._fill(stage, manifest)
                found = self._plan(stage, manifest)
                with self._owned_store():
                    await self._put_in_place(found, manifest)
        except BaseException:
            await self._clean()
            raise
        if report is None:
            report = await self._audit_in_place(manifest)
        return Restored(
            manifest.deployment,
            manifest.begun,
            manifest.store.accounts,
            manifest.store.keys,
            manifest.store.lines,
            report.history_lines,
            journals,
            self._is_pepper_of(manifest),
            str(self._data_dir / found.aside) if found.outgoing else "",
            undone,
            report,
        )

    @contextmanager
    def _failures_explained(self) -> Iterator[None]:
        """Every failure says whether the present data are untouched."""
        try:
            yield
        except _Unfinished:
            raise
        except BackupError as error:
            raise BackupError(f"{error}; {UNTOUCHED}") from None
        except asyncio.CancelledError:
            if (stopped := self._interruption.taken()) is None:
                raise
            raise BackupError(f"{stopped}; {UNTOUCHED}") from None
        except Exception as error:
            raise BackupError(f"the restore has failed: {explained(error)}; {UNTOUCHED}") from error

    async def _fill(self, stage: Stage, manifest: Manifest) -> tuple[int, AuditReport | None]:
        """Restore everything beside the present data; the number of journals, and the report if it could be audited."""
        stage.make()
        has_file = self._restores_database(manifest) and self._address.file is not None
        if has_file:
            await stage.load_database()
        beside = self._data_dir if self._keep_database else None
        journals = await in_thread(stage.load_files, beside)
        if (self._folder / PEPPER).exists() and self._settings.pepper is None and not self._is_pepper_of(manifest):
            stage.load_pepper()
        if self._embedded:
            report = await stage.audited_store(history=has_file)
            return journals, None if self._restores_tables(manifest) else report
        async with opened_external(self._settings) as store:
            await require_rename(store)
            await discard(store)
            await stage.load_store(store, name=staged_name)
            if unconfirmed := await store.unconfirmed():
                raise BackupError("; ".join(unconfirmed))
        return journals, None

    def _plan(self, stage: Stage, manifest: Manifest) -> Replacement:
        """What moves where; with a kept database the journals stay, too, and those of the backup are added."""
        replaced = [] if self._keep_database else list(REPLACED)
        if self._embedded:
            replaced.append("store")
        if self._address.file is not None and not self._keep_database:
            replaced += SQLITE_FILES
        incoming = [name for name in STAGED if (stage.folder / name).exists()]
        if self._keep_database and known_deployment(self._data_dir).read() == manifest.deployment:
            incoming.remove(DEPLOYMENT_FILE)
        journals = stage.folder / "journal"
        if journals.exists() and self._keep_database:
            added = sorted(f"journal/{path.name}" for path in journals.iterdir())
            incoming += [name for name in added if not (self._data_dir / name).exists()]  # a lock may be there
        elif journals.exists():
            incoming.append("journal")
        return Replacement(
            secrets.token_hex(16),
            [name for name in dict.fromkeys([*replaced, *incoming]) if (self._data_dir / name).exists()],
            f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}",
            incoming,
            stage.identity,
            has_keys=not self._embedded,
            has_tables=self._restores_tables(manifest),
        )

    async def _put_in_place(self, found: Replacement, manifest: Manifest) -> None:
        """Decide and finish. An error after the decision is `_Unfinished`."""
        await asyncio.sleep(0)  # a signal that came meanwhile cancels here
        if not found.has_tables:
            self._interruption.ignore()
        found.write(self._data_dir)
        failure: Exception | None = None
        if found.has_tables:
            failure = await self._replace_tables(found, manifest)
        try:
            is_done = await finish(self._settings)
        except Exception as error:
            raise _Unfinished(f"the restore is not finished: {explained(error)}; {NEXT_COMMAND}") from error
        if not is_done:
            raise failure if failure is not None else BackupError("the database has not taken its tables")

    async def _replace_tables(self, found: Replacement, manifest: Manifest) -> Exception | None:
        """Replace the tables of PostgreSQL. After a failure the database itself knows whether they are replaced."""
        assert manifest.database is not None
        interruption, folder = self._interruption, self._folder
        work = partial(replace_tables, restore_id=found.id, check=interruption.check)
        try:
            await in_thread(work, self._address, manifest.database, folder)
        except asyncio.CancelledError:
            if (stopped := interruption.taken()) is None:
                raise
            return stopped
        except Exception as error:
            return error
        finally:
            interruption.ignore()
        return None

    async def _clean(self) -> None:
        """Remove what is staged, unless the restore is decided; as far as the store can be reached."""
        if read_replacement(self._data_dir) is not None:
            return
        await remove_stage(self._settings)

    @contextmanager
    def _owned_store(self) -> Iterator[None]:
        """Keeps every server of the embedded store away while its folder is moved. StoreInUse if one runs."""
        home = ServerHome(self._data_dir)
        if not self._embedded or not home.root.exists():
            yield
            return
        if not home.owner.take():
            raise StoreInUse(f"{self._data_dir} is in use by another process")
        try:
            yield
        finally:
            home.owner.release()

    def _check_backup(self) -> Manifest:
        manifest = read_manifest(self._folder)
        if manifest.schema > SCHEMA:
            raise BackupError(f"the backup's store has schema {manifest.schema}; this version knows {SCHEMA}")
        verify_files(self._folder, manifest)
        if manifest.database is not None and not self._keep_database:
            check_kind(self._address, manifest.database)
        return manifest

    async def _look(self, manifest: Manifest, saved: SavedState, begun: datetime) -> Undone:
        """Refuse to replace anything without `force`; find out what the restore undoes."""
        undone = Undone()
        occupied = []
        if not self._embedded or (self._data_dir / "store").exists():
            async with self._store() as store:
                if not await is_empty(store, besides=STAGING):
                    occupied.append("the store")
                    undone.add(await undone_in_store(store, saved, begun))
        if self._address.exists and await in_thread(has_rows, self._address):
            if not self._keep_database:
                occupied.append("the database")
                if manifest.database is None and self._address.file is None:
                    raise BackupError("the backup has no database: set database.url to an empty one")
            is_newer = not self._keep_database and await in_thread(Database.is_newer_at, self._address)
            if not is_newer and Database.version_at(self._address) == "current":
                undone.add(await in_thread(self._look_at_database, saved, begun))
        elif self._keep_database and manifest.database is not None:
            raise BackupError("there is no database to keep: restore without --keep-database")
        if any((self._data_dir / "journal").glob("*.jsonl")) and not self._keep_database:
            occupied.append(f"the journals in {self._data_dir}")
        known = known_deployment(self._data_dir).read()
        if known and known != manifest.deployment:
            occupied.append(f"{self._data_dir}, which belongs to deployment {known},")
        if occupied and not self._force:
            raise BackupError(f"not empty: {', '.join(occupied)}; --force replaces what is there")
        return undone

    def _look_at_database(self, saved: SavedState, begun: datetime) -> Undone:
        with closing(Database.open(self._address, migrate_tables=False)) as database:
            if self._keep_database and saved.database and database.id != saved.database:
                raise BackupError(f"the history of the backup is in {saved.database}, this database is {database.id}")
            return undone_in_database(database, saved, begun, kept=self._keep_database)

    def _is_pepper_of(self, manifest: Manifest) -> bool:
        peppers = find_peppers(self._settings)
        if peppers is None:
            return False
        return not manifest.peppers or bool(set(manifest.peppers) & set(peppers.fingerprints))

    def _restores_database(self, manifest: Manifest) -> bool:
        return manifest.database is not None and not self._keep_database

    def _restores_tables(self, manifest: Manifest) -> bool:
        return self._restores_database(manifest) and self._address.file is None

    async def _audit_in_place(self, manifest: Manifest) -> AuditReport:
        # A kept database may have lines that the store has lost; the importer moves them first.
        database = self._address if self._restores_database(manifest) else None
        async with self._store() as store:
            try:
                return await audit(store, manifest, database)
            except DatabaseUnavailable:
                report = await audit(store, manifest, None)
                report.unreachable.append("database")
                return report

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[Store]:
        """The store of the settings, whatever it holds."""
        if not self._embedded:
            async with opened_external(self._settings) as store:
                yield store
            return
        server = EmbeddedServer(self._data_dir, patience=0.0)
        await server.start()  # StoreInUse while a gateway runs
        try:
            async with opened(server) as store:
                yield store
        finally:
            await server.stop()

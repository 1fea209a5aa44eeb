"""Restores a backup: checks it whole, finds out what the restore undoes, puts the parts in place, and audits them.

Nothing is changed before all checks have passed. What is replaced on this machine, the embedded store, the SQLite file
and the journals, moves to `data_dir/before-restore-<time>`. The store gets its identity last: a restore that was
interrupted leaves a store that no gateway uses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.accounts.pepper import NAME as PEPPER_FILE
from gateway.accounts.pepper import find_peppers
from gateway.backup.data_files import load_files
from gateway.backup.errors import BackupError
from gateway.backup.files import write_file
from gateway.backup.manifest import PEPPER, STORE, Manifest, read_manifest, verify_files
from gateway.backup.newer_state import Undone, undone_in_database, undone_in_store
from gateway.backup.records import read_records
from gateway.backup.saved_state import SavedState, read_saved_state
from gateway.backup.sql_load import check_kind, has_rows, load_database
from gateway.backup.store_load import is_empty, load, remove_everything, write_identity
from gateway.config.settings import Settings
from gateway.database.address import FILE as DATABASE
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.errors import DatabaseUnavailable, StoreUnavailable
from gateway.history.audit import audit_history
from gateway.history.sql_thread import SqlThread
from gateway.ledger import AuditReport, Ledger
from gateway.store import EmbeddedServer, Store
from gateway.store.configured import configured_address
from gateway.store.identity import SCHEMA, StoreIdentity
from gateway.store.known_deployment import KnownDeployment

PATIENCE = 30.0  # seconds for one answer of the store
REPLACED = ("journal", "accounts.json", "deployment")
SQLITE_FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm")


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

    def __init__(self, settings: Settings, folder: Path, *, force: bool, keep_database: bool) -> None:
        self._settings = settings
        self._folder = folder
        self._force = force
        self._keep_database = keep_database
        self._embedded = configured_address(settings) is None
        self._address = address_of(settings)

    async def run(self) -> Restored:
        """Do it. BackupError if it is refused, which changes nothing, or if the backup turns out to be damaged."""
        manifest = await asyncio.to_thread(self._check_backup)
        saved = await asyncio.to_thread(lambda: read_saved_state(read_records(self._folder / STORE)))
        if saved.records != manifest.store.records:
            raise BackupError(f"{self._folder / STORE} has {saved.records} records instead of {manifest.store.records}")
        undone = await self._look(manifest, saved, datetime.fromisoformat(manifest.begun))
        aside = self._move_aside()
        self._settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        KnownDeployment(self._settings.data_dir).write(manifest.deployment)
        if manifest.database is not None and not self._keep_database:
            await asyncio.to_thread(load_database, self._address, manifest.database, self._folder)
        has_pepper = self._place_pepper(manifest)
        async with self._store() as store:
            journals = await self._fill(store, manifest)
            report = await self._audit(store, manifest)
            await self._make_durable(store)
        counts = manifest.store
        return Restored(
            manifest.deployment,
            manifest.begun,
            counts.accounts,
            counts.keys,
            counts.lines,
            report.history_lines,
            journals,
            has_pepper,
            str(aside or ""),
            undone,
            report,
        )

    async def _fill(self, store: Store, manifest: Manifest) -> int:
        """Write the store and the journals, then the store's identity; returns the number of journals."""
        if not self._embedded:
            await remove_everything(store)
        await load(store, read_records(self._folder / STORE))
        journals = load_files(self._folder, self._settings.data_dir)
        await write_identity(store, StoreIdentity(manifest.deployment, manifest.schema, tuple(manifest.peppers)))
        return journals

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
        if not self._embedded or (self._settings.data_dir / "store").exists():
            async with self._store() as store:
                if not await is_empty(store):
                    occupied.append("the store")
                    undone.add(await undone_in_store(store, saved, begun))
        if self._address.exists and await asyncio.to_thread(has_rows, self._address):
            if not self._keep_database:
                occupied.append("the database")
                if manifest.database is None and self._address.file is None:
                    raise BackupError("the backup has no database: set database.url to an empty one")
            if Database.version_at(self._address) == "current":
                undone.add(await asyncio.to_thread(self._look_at_database, saved, begun))
        elif self._keep_database and manifest.database is not None:
            raise BackupError("there is no database to keep: restore without --keep-database")
        if any((self._settings.data_dir / "journal").glob("*.jsonl")) and not self._keep_database:
            occupied.append(f"the journals in {self._settings.data_dir}")
        known = KnownDeployment(self._settings.data_dir).read()
        if known and known != manifest.deployment:
            occupied.append(f"{self._settings.data_dir}, which belongs to deployment {known},")
        if occupied and not self._force:
            raise BackupError(f"not empty: {', '.join(occupied)}; --force replaces what is there")
        return undone

    def _look_at_database(self, saved: SavedState, begun: datetime) -> Undone:
        with closing(Database.open(self._address, migrate_tables=False)) as database:
            if self._keep_database and saved.database and database.id != saved.database:
                raise BackupError(f"the history of the backup is in {saved.database}, this database is {database.id}")
            return undone_in_database(database, saved, begun, kept=self._keep_database)

    def _move_aside(self) -> Path | None:
        """Move what is replaced on this machine into a folder; with a kept database the journals stay, too."""
        data_dir = self._settings.data_dir
        names = [] if self._keep_database else list(REPLACED)
        if self._embedded:
            names.append("store")
        if self._address.file is not None and not self._keep_database:
            names += SQLITE_FILES
        there = [name for name in names if (data_dir / name).exists()]
        if not there:
            return None
        aside = data_dir / f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        aside.mkdir(mode=0o700)
        for name in there:
            (data_dir / name).rename(aside / name)
        return aside

    def _place_pepper(self, manifest: Manifest) -> bool:
        """Put the pepper of the backup in place of none or of another one; whether the keys have their pepper now."""
        saved, place = self._folder / PEPPER, self._settings.data_dir / PEPPER_FILE
        if self._is_pepper_of(manifest):
            return True
        if saved.exists() and self._settings.pepper is None:
            if place.exists():
                place.rename(place.with_name(f"{PEPPER_FILE}.{time.time_ns()}"))
            write_file(place, saved.read_bytes())
        return self._is_pepper_of(manifest)

    def _is_pepper_of(self, manifest: Manifest) -> bool:
        peppers = find_peppers(self._settings)
        if peppers is None:
            return False
        return not manifest.peppers or bool(set(manifest.peppers) & set(peppers.fingerprints))

    async def _audit(self, store: Store, manifest: Manifest) -> AuditReport:
        report = await Ledger(store, {}).audit(expected=manifest.store.accounts)
        if manifest.database is None or self._keep_database:
            return report  # a kept database may have lines that the store has lost; the importer moves them first
        sql = SqlThread()
        try:
            with closing(await sql.run(Database.open, self._address)) as database:
                report.add(await audit_history(store, database, sql))
        except DatabaseUnavailable:
            report.unreachable.append("database")
        finally:
            sql.close()
        return report

    async def _make_durable(self, store: Store) -> None:
        if doubts := await store.doubts():
            raise BackupError(f"restored, but {'; '.join(doubts)}; look whether it holds")
        if self._embedded:
            await asyncio.to_thread(EmbeddedServer(self._settings.data_dir).home.sync)

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[Store]:
        """The store of the settings, whatever it holds."""
        async with AsyncExitStack() as stack:
            where = configured_address(self._settings)
            if where is None:
                server = EmbeddedServer(self._settings.data_dir, patience=0.0)
                await server.start()  # StoreInUse while a gateway runs
                stack.push_async_callback(server.stop)
                store = await Store.open(server.socket, timeout=PATIENCE)
            else:
                store = await Store.open(where, timeout=PATIENCE)
            stack.push_async_callback(store.close)
            if not store.links:
                raise StoreUnavailable(detail="no server of the store answers")
            yield store

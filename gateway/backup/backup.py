"""Makes a backup of a deployment: of its database, its store, this machine's journals, and on demand of the pepper."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from gateway.accounts.pepper import find_peppers
from gateway.accounts.store_claim import claim
from gateway.backup import BackupError
from gateway.backup.data_files import dump_files
from gateway.backup.files import new_folder, notes_of, write_file
from gateway.backup.manifest import FORM, PEPPER, STORE, DatabaseNote, Manifest, write_manifest
from gateway.backup.records import RecordWriter
from gateway.backup.sql_dump import dump_database
from gateway.backup.store_dump import StoreCounts, StoreDump
from gateway.config.settings import Settings
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.history import binding
from gateway.history.exclusive import importers_waiting
from gateway.history.trim_pause import trimming_paused
from gateway.ledger.gather_all import Progress, unwatched
from gateway.store import Store
from gateway.version import __version__


class BackedUp(Struct):
    """The `gateway backup` document."""

    folder: str
    deployment: str
    accounts: int
    keys: int
    lines: int  # ledger lines in the store
    history_lines: int  # in the database
    files: int
    pepper: bool  # whether it is in the backup


async def make_backup(
    settings: Settings, store: Store, folder: Path, *, with_pepper: bool, progress: Progress = unwatched
) -> BackedUp:
    """Write a backup into a new or empty folder. The gateway may run meanwhile.

    BackupError if it cannot be made; then the folder has no manifest, so it is no backup.
    """
    pepper = _pepper(settings) if with_pepper else None
    new_folder(folder)
    identity = await claim(store)
    async with trimming_paused(store) as pause:
        begun = await _now(store)
        database = await _dump_database(settings, store, folder)
        counts = await _dump_store(store, folder, progress)
        await asyncio.to_thread(dump_files, settings.data_dir, folder)
        if not await pause.still_held():
            raise BackupError("the backup was stopped for too long: the importer may have trimmed the store meanwhile")
    if pepper is not None:
        write_file(folder / PEPPER, pepper + b"\n")
    files = await asyncio.to_thread(notes_of, folder)
    peppers = list(identity.peppers)
    manifest = Manifest(
        FORM, __version__, begun, identity.deployment, identity.schema, peppers, counts, database, files
    )
    write_manifest(folder, manifest)
    history_lines = database.rows["ledger_lines"] if database is not None else 0
    return BackedUp(
        str(folder),
        identity.deployment,
        counts.accounts,
        counts.keys,
        counts.lines,
        history_lines,
        len(files),
        with_pepper,
    )


async def _dump_database(settings: Settings, store: Store, folder: Path) -> DatabaseNote | None:
    """Copy the database; None if there is none yet."""
    address = address_of(settings)
    if not address.exists or await asyncio.to_thread(Database.version_at, address) == "none":
        if await binding.remembered(store):
            raise BackupError("the database is missing that has the store's history")
        return None
    with closing(await asyncio.to_thread(Database.open, address, migrate_tables=False)) as database:
        if known := await binding.remembered(store):
            binding.check(known, database)
        await asyncio.to_thread(_let_round_end, database)
        return await asyncio.to_thread(dump_database, database, folder)


def _let_round_end(database: Database) -> None:
    """Wait until the importer's round ends that has begun before the pause, because it may trim."""
    with importers_waiting(database):
        return


async def _dump_store(store: Store, folder: Path, progress: Progress) -> StoreCounts:
    writer = RecordWriter(folder / STORE)
    try:
        return await StoreDump(store, writer, progress).run()
    finally:
        writer.close()


def _pepper(settings: Settings) -> bytes:
    peppers = find_peppers(settings)
    if peppers is None:
        raise BackupError(f"there is no pepper in {settings.data_dir}")
    if peppers.previous:
        raise BackupError(
            "the pepper is being replaced: a backup has one pepper, so remove store.previous_pepper first"
        )
    return peppers.current


async def _now(store: Store) -> str:
    seconds, microseconds = await store.link("").call("TIME")
    moment = datetime.fromtimestamp(int(seconds), UTC).replace(microsecond=int(microseconds))
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

"""Proves a backup: restores it into a temporary place, audits it there, and compares every part with the backup.

The store and an SQLite file are restored into a temporary folder. Tables of PostgreSQL are written into a temporary
schema of the configured database, in a transaction that is undone. The deployment itself is not touched.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.accounts.pepper import pepper_fingerprint
from gateway.backup import BackupError
from gateway.backup.files import notes_of
from gateway.backup.interruption import Interruption, in_thread
from gateway.backup.manifest import JOURNAL, PEPPER, STORE, Manifest, read_manifest, verify_files
from gateway.backup.records import Part, RecordWriter, read_records
from gateway.backup.sql_load import check_kind, verify_tables
from gateway.backup.stage import Stage
from gateway.backup.store_dump import StoreDump
from gateway.config.settings import Settings
from gateway.database.address import address_of
from gateway.ledger import AuditReport
from gateway.ledger.gather_all import Progress, unwatched
from gateway.setup.explained_errors import explained
from gateway.store import Store
from gateway.store.identity import SCHEMA

NAMED = 5  # differences in a message

_encoder = msgspec.msgpack.Encoder()


class Verified(Struct):
    """What was restored and compared."""

    folder: str
    deployment: str
    begun: str  # when the backup was begun
    accounts: int
    keys: int
    lines: int
    history_lines: int
    files: int
    pepper: bool  # whether it is in the backup
    audit: AuditReport  # of the restored data


class _Content(Struct):
    """A key of a store, without an order of its elements."""

    kind: str
    expires: int
    elements: int = 0
    digest: int = 0


async def verify_backup(settings: Settings, folder: Path, progress: Progress = unwatched) -> Verified:
    """Restore the backup into a temporary place, and compare. BackupError says what is wrong with it."""
    manifest = await in_thread(_checked, settings, folder)
    interruption = Interruption()
    with tempfile.TemporaryDirectory(prefix="gateway-verify-") as place, interruption.watched():
        try:
            report = await _restored(settings, folder, manifest, Path(place), interruption, progress)
        except BackupError:
            raise
        except Exception as error:
            raise BackupError(f"{folder} could not be restored: {explained(error)}") from error
    counts, database = manifest.store, manifest.database
    return Verified(
        str(folder),
        manifest.deployment,
        manifest.begun,
        counts.accounts,
        counts.keys,
        counts.lines,
        database.rows["ledger_lines"] if database is not None else 0,
        len(manifest.files),
        PEPPER in manifest.files,
        report,
    )


def _checked(settings: Settings, folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    if manifest.schema > SCHEMA:
        raise BackupError(f"the backup's store has schema {manifest.schema}; this version knows {SCHEMA}")
    verify_files(folder, manifest)
    if manifest.database is not None and manifest.database.kind != "sqlite":
        check_kind(address_of(settings), manifest.database)
    if PEPPER in manifest.files and manifest.peppers:
        found = pepper_fingerprint((folder / PEPPER).read_bytes().strip())
        if found not in manifest.peppers:
            raise BackupError(f"{folder / PEPPER} is not the pepper of the keys in the backup")
    return manifest


async def _restored(
    settings: Settings,
    folder: Path,
    manifest: Manifest,
    place: Path,
    interruption: Interruption,
    progress: Progress,
) -> AuditReport:
    stage = Stage(place / "restored", folder, manifest, progress)
    stage.make()
    database = manifest.database
    if database is not None and database.kind == "sqlite":
        await stage.load_database()
    elif database is not None:
        await in_thread(verify_tables, address_of(settings), database, folder, interruption.check)
    stage.load_files(beside=None)
    _compare_journals(folder / JOURNAL, stage.folder / "journal")

    async def compare(store: Store) -> None:
        await _dump(store, place / STORE, progress)
        await in_thread(_compare_stores, folder / STORE, place / STORE)

    return await stage.audited_store(history=database is not None and database.kind == "sqlite", then=compare)


def _compare_journals(saved: Path, restored: Path) -> None:
    expected, found = notes_of(saved), notes_of(restored)
    if differing := [name for name, note in expected.items() if found.get(name) != note]:
        raise BackupError(f"journals that are not restored as they are in the backup: {', '.join(differing[:NAMED])}")


async def _dump(store: Store, path: Path, progress: Progress) -> None:
    writer = RecordWriter(path)
    try:
        await StoreDump(store, writer, progress).run()
    finally:
        await asyncio.to_thread(writer.close)


def _compare_stores(saved: Path, restored: Path) -> None:
    """BackupError if a key differs. Keys that expire are compared if they exist; they may be gone at any moment."""
    expected, found = _contents(read_records(saved)), _contents(read_records(restored))
    differing = [name for name, one in expected.items() if found.get(name, one if one.expires else None) != one]
    differing += sorted(found.keys() - expected.keys())
    if differing:
        names = ", ".join(islice(differing, NAMED))
        raise BackupError(
            f"keys of the store that are not restored as they are in the backup: {len(differing)}: {names}"
        )


def _contents(parts: Iterable[Part]) -> dict[str, _Content]:
    found: dict[str, _Content] = {}
    for part in parts:
        content = found.setdefault(part.key, _Content(part.kind, part.expires))
        for element in _elements(part):
            content.elements += 1
            digest = hashlib.sha256(_encoder.encode(element)).digest()
            content.digest = (content.digest + int.from_bytes(digest, "big")) % 2**256
    return found


def _elements(part: Part) -> Iterator[object]:
    match part.kind:
        case "hash":
            yield from zip(part.values[::2], part.values[1::2], strict=True)
        case "zset":
            yield from zip(part.values[::2], map(float, part.values[1::2]), strict=True)
        case _:
            yield from part.values

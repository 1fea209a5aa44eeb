"""The manifest of a backup: what it is of, what is in it, and the hashes of its files. It is written last."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.backup import BackupError
from gateway.backup.files import FileNote, note_of, sync_folder, write_file
from gateway.backup.store_dump import StoreCounts

NAME = "manifest.json"
FORM = 1  # the layout of the folder
STORE, DATABASE_FILE, TABLES, JOURNAL, DATA, PEPPER = (
    "store.records.gz", "gateway.db", "database", "journal", "data", "pepper",
)  # fmt: skip


class DatabaseNote(Struct):
    """The database of a backup."""

    kind: str  # sqlite, postgresql
    id: str
    revision: str  # version of its tables
    rows: dict[str, int]  # by table


class Manifest(Struct):
    """What a backup is; its files by their paths in the folder."""

    form: int
    version: str  # of the program that made it
    begun: str  # RFC 3339, by the store's clock
    deployment: str
    schema: int  # of the store's data
    peppers: list[str]  # fingerprints
    store: StoreCounts
    database: DatabaseNote | None
    files: dict[str, FileNote]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it; the backup is complete when this returns."""
    write_file(folder / NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest. BackupError if there is none, or if a later version wrote it."""
    try:
        content = (folder / NAME).read_bytes()
    except FileNotFoundError:
        raise BackupError(f"{folder} is no complete backup: it has no {NAME}") from None
    try:
        form = msgspec.json.decode(content, type=dict).get("form")
        if form != FORM:
            raise BackupError(f"{folder}: the backup has form {form}; this version knows form {FORM}")
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupError(f"{folder / NAME}: {error}") from None


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file with its hash. BackupError names the first one that is missing or changed."""
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise BackupError(f"{folder / NAME}: {name!r} is not in the folder")
        if not path.is_file():
            raise BackupError(f"{path} is missing")
        if note_of(path) != expected:
            raise BackupError(f"{path} was changed: its hash is not the one in {NAME}")

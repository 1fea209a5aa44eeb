"""Files of a backup: written with mode 0600, on the disk before the manifest names them with their hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from msgspec import Struct

from gateway.backup import BackupError


class FileNote(Struct):
    """A file as the manifest knows it."""

    size: int  # bytes
    sha256: str


def new_folder(folder: Path) -> None:
    """Make the folder of a backup, for this user only. BackupError if there is something in it already."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BackupError(f"{folder} is not empty: a backup needs a folder of its own")
        folder.chmod(0o700)
    except (NotADirectoryError, FileExistsError):
        raise BackupError(f"{folder} is not a folder") from None


def write_file(path: Path, content: bytes) -> None:
    """Write a new file, which is on the disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file to a new one, which is on the disk when this returns."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with source.open("rb") as old, os.fdopen(descriptor, "wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(descriptor)


def notes_of(folder: Path) -> dict[str, FileNote]:
    """Every file under the folder, by its path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): note_of(path) for path in paths}


def note_of(path: Path) -> FileNote:
    """Size and hash of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileNote(path.stat().st_size, digest.hexdigest())


def sync_folder(folder: Path) -> None:
    """Let the names of new files survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Where the content of files is: behind one interface, so that a folder and an object store look the same.

A name is the id of a file, which the gateway has made. Reads and writes happen in threads. Sharp edge: `save` replaces
a file of the same name as a whole, so a step that is repeated after a crash writes the same file again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from gateway.errors import Unavailable

PIECE = 256 * 1024  # bytes of one read
DRAFT_FOR = 86_400  # seconds; a file that is being written is younger
NOT_NOW = "Files cannot be stored at the moment"


class FileStorage(Protocol):
    """The content of files, by name. Unavailable if it cannot be reached, or has no room."""

    async def place(self) -> str:
        """The id of this storage: files of another one are not found here."""

    async def save(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Store a file durably, in place of one of the same name."""

    async def open(self, name: str) -> FileContent | None:
        """The content of a file; None if there is none of that name. Close it."""

    async def delete(self, name: str) -> None:
        """Delete a file; nothing happens if there is none of that name."""

    async def sweep(self) -> None:
        """Delete what killed processes have left of files that they stored."""


class FileContent(Protocol):
    """The content of one file, read from start to end."""

    size: int  # bytes

    async def read(self) -> bytes:
        """The next bytes, at most `PIECE`; b"" at the end."""

    async def close(self) -> None:
        """Read no more."""


class LocalFiles:
    """Files in a folder of this machine, or in one that several machines share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._place = ""

    async def place(self) -> str:
        """The id in the folder, made by the first process that asks."""
        if not self._place:
            try:
                self._place = await asyncio.to_thread(folder_id, self._folder)
            except OSError as error:
                raise Unavailable(NOT_NOW, detail=f"files: {error}") from None
        return self._place

    async def save(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        path = self._path(name)
        draft = path.with_name(f".{name}.{secrets.token_hex(4)}")
        try:
            file = await asyncio.to_thread(_create, draft)
            try:
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
                await asyncio.to_thread(_end, file, draft, path)
            finally:
                await asyncio.to_thread(_close, file, draft)
        except OSError as error:
            raise Unavailable(NOT_NOW, detail=f"files: {error}") from None

    async def open(self, name: str) -> LocalContent | None:
        try:
            file = await asyncio.to_thread(self._path(name).open, "rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unavailable("The file cannot be read at the moment", detail=f"files: {error}") from None
        return LocalContent(file)

    async def delete(self, name: str) -> None:
        try:
            await asyncio.to_thread(self._path(name).unlink, missing_ok=True)
        except OSError as error:
            raise Unavailable("The file cannot be deleted at the moment", detail=f"files: {error}") from None

    async def sweep(self) -> None:
        try:
            await asyncio.to_thread(_sweep, self._folder)
        except OSError as error:
            raise Unavailable("Files cannot be deleted at the moment", detail=f"files: {error}") from None

    def _path(self, name: str) -> Path:
        return self._folder / name[-2:] / name  # ids end with random characters


class LocalContent:
    """The content of one file in a folder."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    async def read(self) -> bytes:
        return await asyncio.to_thread(self._file.read, PIECE)

    async def close(self) -> None:
        await asyncio.to_thread(self._file.close)


async def pieces_of(content: FileContent) -> AsyncGenerator[bytes]:
    """The whole content, in pieces."""
    while piece := await content.read():
        yield piece


def folder_id(folder: Path) -> str:
    """The id in a folder's file `.id`; made, with the folder, if there is none. OSError."""
    path = folder / ".id"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".id.{secrets.token_hex(4)}"
    if not path.exists():
        draft.write_text(secrets.token_hex(8), encoding="ascii")
        try:
            os.link(draft, path)  # the first process wins
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii")


def _sweep(folder: Path) -> None:
    """Delete drafts that nothing was written to for a day."""
    old = time.time() - DRAFT_FOR
    for some in folder.glob("*/"):
        for draft in some.glob(".file-*"):
            with suppress(FileNotFoundError):  # it has its name now
                if draft.stat().st_mtime < old:
                    draft.unlink()


def _create(path: Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _end(file: BinaryIO, draft: Path, path: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    draft.rename(path)
    sync_folder(path.parent)


def _close(file: BinaryIO, draft: Path) -> None:
    file.close()
    draft.unlink(missing_ok=True)  # gone if it has its name


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

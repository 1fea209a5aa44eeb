"""An uploaded file between its arrival and its use: the first 256 KiB in memory, a longer one in a file without a name.

::

    spool = Spool(folder)
    spool.write(piece)                  # and where spool.full: await spool.drain()
    await spool.drain()                 # the last byte is here
    async for piece in spool.chunks():  # from the start, as often as there are attempts
    spool.close()

The temporary file is never linked, or unlinked at once, so nothing is left of it however the process ends. Reads and
writes of it happen in threads: a disk that is busy must not stop everybody else. Sharp edge: whoever writes on without
draining fills the memory.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from gateway.errors import Unavailable
from gateway.uploads.budget import Share

T = TypeVar("T")

IN_MEMORY = 256 * 1024  # bytes of a file that needs no disk, and of what waits to be written to one
PIECE = 64 * 1024  # bytes of one read

#: Reads so many bytes at an offset; fewer at the end.
Read = Callable[[int, int], bytes]


class Spool:
    """One file; written from start to end, then read."""

    def __init__(
        self, folder: Path, *, memory: Share | None = None, disk: Share | None = None, files: Share | None = None
    ) -> None:
        self.size = 0
        self._shares = [share for share in (memory, disk, files) if share is not None]
        self._memory = memory
        self._disk = disk
        self._files = files
        self._folder = folder
        self._buffer = bytearray()  # what is not on the disk
        self._file: _UnnamedFile | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether to drain before more is written."""
        return len(self._buffer) > IN_MEMORY

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes at the end; Overloaded or ConcurrencyLimited if a budget is used up."""
        if self._memory is not None:
            self._memory.take(len(data))
        self._buffer += data
        self.size += len(data)

    async def drain(self) -> None:
        """Move to the disk what does not belong in memory; Unavailable when the disk takes no more.

        Overloaded or ConcurrencyLimited if a budget is used up.
        """
        if self._file is None and not self.full:
            return
        if self._file is None and self._files is not None:
            self._files.take(1)
        if self._disk is not None:
            self._disk.take(len(self._buffer))
        waiting, self._buffer = self._buffer, bytearray()
        try:
            if self._file is None:
                self._file = await asyncio.to_thread(_UnnamedFile, self._folder)
            await asyncio.to_thread(self._file.append, waiting)
        except OSError as error:
            if self._file is not None:
                self._file.close()  # now, for the error's traceback would keep it for a while
            self.close()
            raise Unavailable("The upload cannot be stored at the moment", detail=f"spool: {error}") from None
        if self._memory is not None:
            self._memory.give_back(len(waiting))

    async def chunks(self, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` to `end`, at most 64 KiB at a time; every call begins anew."""
        offset = start
        while piece := await self.read(offset, PIECE if end is None else min(PIECE, end - offset)):
            offset += len(piece)
            yield piece

    async def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on."""
        return await self.examine(lambda read: read(offset, length))

    async def examine(self, look: Callable[[Read], T]) -> T:
        """What `look` makes of the file; it is called in a thread when the file is on the disk."""
        if self._closed:
            raise ValueError("the spool is closed")
        if self._file is None:
            return look(self._read_memory)
        try:
            return await asyncio.to_thread(look, self._file.read)
        except OSError as error:
            raise Unavailable("The upload cannot be read at the moment", detail=f"spool: {error}") from None

    def close(self) -> None:
        """Forget the file; a thread that is busy with it finishes its step first."""
        self._closed = True
        self._buffer = bytearray()
        self._file = None
        for share in self._shares:
            share.close()

    def _read_memory(self, offset: int, length: int) -> bytes:
        return bytes(self._buffer[offset : offset + length])


class _UnnamedFile:
    """A temporary file that goes away with its last user: no thread can write into a descriptor of somebody else."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = -1
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = _open_unnamed(folder)

    def append(self, data: bytearray) -> None:
        """Write all of `data` at the end."""
        with memoryview(data) as rest:
            written = 0
            while written < len(rest):
                written += os.write(self._descriptor, rest[written:])

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset` on."""
        return os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        """Give it back; nobody may be using it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close


def _open_unnamed(folder: Path) -> int:
    """A descriptor of a new file in `folder` that no name leads to."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return os.dup(file.fileno())

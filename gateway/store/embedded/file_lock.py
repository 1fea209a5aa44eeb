"""A lock that is released when its holder ends: flock on a file, exclusive or shared.

Sharp edge: the lock belongs to the open file, so a child that inherits the descriptor holds it, too. The embedded
server inherits one on purpose: while it is locked, a server runs, also after its parent has ended.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """One lock file; it is not locked until `take`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def fileno(self) -> int:
        """The descriptor to pass to a child."""
        assert self._file is not None, "the lock is not held"
        return self._file

    def take(self, *, shared: bool = False) -> bool:
        """Take the lock if it is free; False if another process holds it."""
        if self._file is not None:
            return True
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def note(self, text: str) -> None:
        """Write a text into the file for processes that find it locked."""
        os.ftruncate(self.fileno(), 0)
        os.pwrite(self.fileno(), text.encode(), 0)

    def release(self) -> None:
        """Release the lock; a child that inherited it still holds it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

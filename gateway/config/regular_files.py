"""Reads files that an operator names, which must be regular ones: a pipe without a writer would block a reload."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

NOT_REGULAR: Final = "it is a pipe or a device, not a regular file"


def read_regular(path: Path, most: int = -1) -> bytes:
    """The bytes of the file that a path leads to, at most `most` of them; OSError, also for what is no regular file."""
    with open(path, "rb", opener=_opened) as file:
        return file.read(most)


def _opened(path: str, flags: int) -> int:
    """Opening a pipe waits for its writer unless O_NONBLOCK is set; on regular files it has no effect."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # the caller refuses a folder
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, NOT_REGULAR)

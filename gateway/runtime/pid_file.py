"""The file in data_dir that names the running supervisor, so that a command can send it a signal.

The supervisor holds a lock on the file, which ends with its process. So the number in an unlocked file is never used:
the system may have given it to another process. Sharp edge: of two supervisors with one data_dir, the first is named.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from pathlib import Path
from typing import Self

NAME = "gateway.pid"


class PidFile:
    """The file of this process; use it as a context."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / NAME
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Write the file; nothing if another process holds it, or if data_dir cannot be written."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, b"%d\n" % os.getpid())
        return self

    def __exit__(self, *details: object) -> None:
        """Release the lock; the file stays and means nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


def running_pid(data_dir: Path) -> int | None:
    """The process id of the running supervisor with this data_dir; None if there is none."""
    try:
        descriptor = os.open(data_dir / NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        text = os.read(descriptor, 32).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None


def ask_reload(data_dir: Path, force: bool) -> int | None:
    """Ask the running supervisor with this data_dir for a reload; its process id, None if there is none.

    `force`: also if accounts are in a group that the new configuration lacks.
    """
    pid = running_pid(data_dir)
    if pid is not None:
        os.kill(pid, signal.SIGUSR1 if force else signal.SIGHUP)
    return pid

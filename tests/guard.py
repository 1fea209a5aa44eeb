"""Runs a command, and ends all that it started: `python -P tests/guard.py FOLDER COMMAND ...`.

When the command has ended, its processes get SIGTERM, and SIGKILL after `GRACE` seconds. When the parent of this
process is gone, also by SIGKILL, the command ends the same way, and FOLDER is removed. On Linux processes in other
sessions end too: this process adopts those whose parent is gone. Elsewhere only the command itself ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType

LOOK_EVERY = 0.2  # seconds
GRACE = 5.0  # seconds to end by themselves
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> list[int]:
    """All running processes below this one."""
    children: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = file.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(file.parent.name))
    found = list(children.get(pid, ()))
    for child in found:  # the list grows meanwhile
        found += children.get(child, ())
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, some of which may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Woken:
    """Waits for the end of a child, at most `LOOK_EVERY` seconds."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def wait(self) -> None:
        """Return at the next signal."""
        select.select([self._read], [], [], LOOK_EVERY)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)


def ended_children() -> dict[int, int] | None:
    """Exit codes of children, own or adopted, that have ended, by process id; None if no child is left.

    None of them stays a zombie: a test may wait until a process is gone.
    """
    codes: dict[int, int] = {}
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return codes or None
    return codes


def end_all(running: set[int], woken: Woken) -> None:
    """End these children and all descendants: politely, so that a database releases its memory, then at once."""
    deadline = time.monotonic() + GRACE
    send(running.union(descendants(os.getpid())), signal.SIGTERM)
    # The list of processes is not read at once, and can lack one. That none is left is only known from the system.
    while (ended := ended_children()) is not None:
        running -= ended.keys()
        if time.monotonic() > deadline:
            send(running.union(descendants(os.getpid())), signal.SIGKILL)
        woken.wait()


def main(folder: Path, command: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    parent = os.getppid()
    adopt_orphans()
    woken = Woken()
    children: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        send(children, number)

    # Before the command starts: it would ignore what this process ignores, as in the background of a shell.
    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    child = subprocess.Popen(command).pid
    children.append(child)
    while os.getppid() == parent:
        woken.wait()
        if (code := (ended_children() or {}).get(child)) is not None:
            end_all(set(), woken)
            return code if code >= 0 else 128 - code  # as a shell has it for a process that a signal ended
    end_all({child}, woken)
    shutil.rmtree(folder, ignore_errors=True)
    return 128 + signal.SIGKILL


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

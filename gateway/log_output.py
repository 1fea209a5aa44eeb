"""Writes the log to a file descriptor from a thread, so that a log that nobody reads blocks no event loop.

::

    output = LogOutput(2)
    output.write(b"a line\\n")       # never waits
    output.flush(within=1.0)        # at the end of the process

At most `MOST_WAITING` bytes wait for the reader. Lines beyond that are dropped and counted. When there is room again, a
line says how many are missing. Sharp edge: a process that is killed loses the lines that wait.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable

MOST_WAITING = 1 << 20  # bytes
PIECE = 1 << 16  # bytes per write, as many as a pipe takes


def _no_line(dropped: int) -> bytes:
    return b""


class LogOutput:
    """A descriptor and the lines that wait for it. The thread starts with the first line."""

    def __init__(self, fd: int, *, gap_line: Callable[[int], bytes] = _no_line) -> None:
        self._fd = fd
        self._gap_line = gap_line  # the line that stands for so many dropped ones
        self._waiting: deque[tuple[bytes, int]] = deque()  # bytes, and the number of lines in them
        self._size = 0  # bytes that wait, or are being written
        self._gap = 0  # dropped lines that no line stands for yet
        self._dropped = 0  # dropped lines since the last `take_dropped`
        self._changed = threading.Condition(threading.Lock())
        self._started = False

    def write(self, data: bytes, lines: int = 1) -> None:
        """Queue whole lines, or drop them if too many wait."""
        with self._changed:
            if self._size + len(data) > MOST_WAITING:
                self._drop(lines)
                return
            if self._gap:
                self._add(self._gap_line(self._gap), 1)
                self._gap = 0
            self._add(data, lines)
            self._changed.notify_all()
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="log", daemon=True).start()

    def flush(self, *, within: float) -> bool:
        """Wait at most `within` seconds until everything is written; False if it is not."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._size, within)

    def take_dropped(self) -> int:
        """The number of lines that were dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def _add(self, data: bytes, lines: int) -> None:
        self._waiting.append((data, lines))
        self._size += len(data)

    def _drop(self, lines: int) -> None:
        self._dropped += lines
        self._gap += lines

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                data, lines = self._waiting.popleft()
            written = self._write(data)
            with self._changed:
                self._size -= len(data)
                if not written:
                    self._drop(lines)
                self._changed.notify_all()

    def _write(self, data: bytes) -> bool:
        """Write all of `data`, which may take forever; False if nothing can be written."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest[:PIECE]) :]
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK):
                    return False  # for example, its reader is gone: no reason to stop serving
                select.select([], [self._fd], [])  # another process has made the descriptor non-blocking
        return True

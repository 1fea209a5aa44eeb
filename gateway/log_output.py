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
from collections.abc import Callable
from queue import SimpleQueue

MOST_WAITING = 1 << 20  # bytes
PIECE = 1 << 16  # bytes per write, as many as a pipe takes

Job = tuple[bytes, int]  # whole lines, and their number


def _no_line(dropped: int) -> bytes:
    return b""


class LogOutput:
    """A descriptor and the lines that wait for it. The thread starts with the first line."""

    def __init__(self, fd: int, *, gap_line: Callable[[int], bytes] = _no_line) -> None:
        self._fd = fd
        self._gap_line = gap_line  # the line that stands for so many dropped ones
        self._jobs: SimpleQueue[Job | threading.Event] = SimpleQueue()
        self._writers = threading.Lock()  # guards what follows, up to the empty line
        self._queued = 0  # bytes, since the start
        self._refused = 0  # lines that were dropped because too many wait
        self._reported = 0  # lines that were dropped, up to the last `take_dropped`
        self._gap = 0  # refused lines that no line stands for yet
        self._started = False

        self._written = 0  # bytes that the thread has written, or failed to write
        self._failed = 0  # lines that it failed to write

    @property
    def waiting(self) -> int:
        """Bytes that wait, or are being written."""
        return self._queued - self._written

    def write(self, data: bytes, lines: int = 1) -> None:
        """Queue whole lines, or drop them if too many wait."""
        with self._writers:
            if self.waiting + len(data) > MOST_WAITING:
                self._refused += lines
                self._gap += lines
                return
            if self._gap:
                self._put(self._gap_line(self._gap), 1)
                self._gap = 0
            self._put(data, lines)
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="log", daemon=True).start()

    def flush(self, *, within: float) -> bool:
        """Wait at most `within` seconds until everything is written; False if it is not."""
        if not self.waiting:
            return True
        done = threading.Event()
        self._jobs.put(done)
        return done.wait(within)

    def take_dropped(self) -> int:
        """The number of lines that were dropped since the last call."""
        with self._writers:
            before, self._reported = self._reported, self._refused + self._failed
            return self._reported - before

    def _put(self, data: bytes, lines: int) -> None:
        self._queued += len(data)
        self._jobs.put((data, lines))

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, threading.Event):
                job.set()
                continue
            data, lines = job
            if not self._write(data):
                self._failed += lines
            self._written += len(data)

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

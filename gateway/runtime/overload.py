"""Whether this worker has more than it can carry: how late its event loop runs, and how much memory it holds.

Every `BEAT` seconds a timer looks how late it is; `high` says whether lag or memory are past their limits, and requests
are then refused with 503 before anything else is done for them. Sharp edge: one long stall is the watchdog's business;
pressure is lag that lasts, so a single late beat sheds nothing.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

BEAT = 0.05  # seconds
SMOOTHING = 0.2  # weight of the newest lag: about a second until pressure shows, and until it is gone
LOOK_AT_MEMORY_EVERY = 20  # beats; a look takes 11 µs

_STATM = Path("/proc/self/statm")


class OverloadMonitor:
    """Lag and memory of one process; a limit of 0 is none."""

    def __init__(self, *, max_lag: float, max_memory: int) -> None:
        self.max_lag = max_lag
        self.max_memory = max_memory
        self.lag = 0.0  # seconds, smoothed
        self.memory = 0  # bytes resident; 0 where the system does not tell
        self.last_beat = 0.0  # time.monotonic(), for the watchdog
        self.high = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beats = 0
        self._due = 0.0

    def start(self) -> None:
        """Begin to beat, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.last_beat = time.monotonic()
        self._schedule()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        assert self._loop is not None
        self._due = time.monotonic() + BEAT  # uvloop's own clock stands still within one turn of the loop
        self._timer = self._loop.call_later(BEAT, self._beat)

    def _beat(self) -> None:
        now = self.last_beat = time.monotonic()
        self.lag += (max(0.0, now - self._due) - self.lag) * SMOOTHING
        self._beats += 1
        if self.max_memory and self._beats % LOOK_AT_MEMORY_EVERY == 0:
            self.memory = resident_bytes()
        self.high = bool(
            (self.max_lag and self.lag > self.max_lag) or (self.max_memory and self.memory > self.max_memory)
        )
        self._schedule()


def resident_bytes() -> int:
    """Memory this process holds now; 0 where /proc does not tell."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0

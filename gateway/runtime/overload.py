"""Detects an overloaded worker by the lag of its event loop and by its memory.

Every `CHECK_EVERY` seconds a timer measures how late it is. While lag or memory is above its limit, `high` is True, and
requests are refused with 503 before any other work. Sharp edge: the watchdog handles a single long stall. Overload is a
lasting lag, so one late check refuses no request.
"""

from __future__ import annotations

import asyncio
import time

from gateway.metrics.process import resident_bytes

CHECK_EVERY = 0.05  # seconds
SMOOTHING = 0.2  # weight of the newest lag: overload shows, and ends, after about a second
MEMORY_EVERY = 20  # checks of the lag per check of the memory, which takes 11 µs


class OverloadMonitor:
    """Lag and memory of one process; 0 means no limit."""

    def __init__(self, *, max_lag: float, max_memory: int) -> None:
        self.max_lag = max_lag
        self.max_memory = max_memory
        self.lag = 0.0  # seconds, smoothed
        self.memory = 0  # resident bytes; 0 if the system does not report them
        self.last_check = 0.0  # time.monotonic(), for the watchdog
        self.high = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._checks = 0
        self._due = 0.0

    def start(self) -> None:
        """Start the checks on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.last_check = time.monotonic()
        self._schedule()

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        assert self._loop is not None
        self._due = time.monotonic() + CHECK_EVERY  # uvloop updates its own clock only once per turn of the loop
        self._timer = self._loop.call_later(CHECK_EVERY, self._check)

    def _check(self) -> None:
        now = self.last_check = time.monotonic()
        self.lag += (max(0.0, now - self._due) - self.lag) * SMOOTHING
        self._checks += 1
        if self.max_memory and self._checks % MEMORY_EVERY == 0:
            self.memory = resident_bytes()
        self.high = bool(
            (self.max_lag and self.lag > self.max_lag) or (self.max_memory and self.memory > self.max_memory)
        )
        self._schedule()

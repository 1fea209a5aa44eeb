"""Detects an overloaded worker by the lag of its event loop and by its memory.

Every `CHECK_EVERY` seconds a timer measures how late it is. While lag or memory is above its limit, `high` is True, and
requests are refused with 503 before any other work. Sharp edge: the watchdog handles a single long stall. Overload is a
lasting lag, so one late check refuses no request.

A process without work looks once in `IDLE_EVERY` seconds only, until `wake` is called for the next request. The checks
and those of the watchdog were half of what an idle worker used (2026-12-01).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sized

from gateway.metrics.process import resident_bytes

CHECK_EVERY = 0.05  # seconds
SMOOTHING = 0.2  # weight of the newest lag: overload shows, and ends, after about a second
MEMORY_EVERY = 20  # checks of the lag per check of the memory, which takes 11 µs, and of the work
IDLE_EVERY = 1.0  # seconds
IDLE_USE = 0.02  # seconds of processor time between two checks of the work, below which there is none


class OverloadMonitor:
    """Lag and memory of one process; 0 means no limit. While there is anything in `running`, it has work."""

    def __init__(self, *, max_lag: float, max_memory: int, running: Sized = ()) -> None:
        self.max_lag = max_lag
        self.max_memory = max_memory
        self.lag = 0.0  # seconds, smoothed
        self.memory = 0  # resident bytes; 0 if the system does not report them
        self.last_check = 0.0  # time.monotonic(), for the watchdog
        self.high = False
        self.due = 0.0  # time.monotonic() of the next check
        self.asleep = False  # there is no work
        self.woken = threading.Event()  # for the watchdog
        self._running = running
        self._used = 0.0  # seconds of processor time, at the last check of the work
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._checks = 0

    def start(self) -> None:
        """Start the checks on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.last_check, self._used = time.monotonic(), time.process_time()
        self._schedule(CHECK_EVERY)

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def wake(self) -> None:
        """Look often again: there is work."""
        assert self._timer is not None
        self._timer.cancel()
        self.asleep, self.last_check = False, time.monotonic()
        self._schedule(CHECK_EVERY)
        self.woken.set()

    def _schedule(self, wait: float) -> None:
        assert self._loop is not None
        self.due = time.monotonic() + wait  # uvloop updates its own clock only once per turn of the loop
        self._timer = self._loop.call_later(wait, self._check)

    def _check(self) -> None:
        now = self.last_check = time.monotonic()
        self.lag += (max(0.0, now - self.due) - self.lag) * SMOOTHING
        self._checks += 1
        if self.asleep or self._checks % MEMORY_EVERY == 0:
            if self.max_memory:
                self.memory = resident_bytes()
            self._look_for_work()
        self.high = bool(
            (self.max_lag and self.lag > self.max_lag) or (self.max_memory and self.memory > self.max_memory)
        )
        self._schedule(IDLE_EVERY if self.asleep else CHECK_EVERY)

    def _look_for_work(self) -> None:
        before, self._used = self._used, time.process_time()
        works = bool(self._running) or self.high or self._used - before > IDLE_USE
        if works and self.asleep:
            self.woken.set()
        elif not works:
            self.woken.clear()
        self.asleep = not works

"""How soon lines may begin: at once, or few in a second while the process waits for a processor most of the time.

A process of low priority takes no processor time from the others, but its calls take some of the store's and of other
processes of usual priority. Beside a worker at half load, whose upstream answered at once, 600 lines a second raised
the p99 of calls by a quarter; the process waited for a processor for 85 % of the time in which it had work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

BUSY_RATE = 50.0  # lines a second that begin on a busy machine: 4,320,000 in the 24 hours of a batch
BUSY_SHARE = 0.5  # of the time in which the process has work: without a processor
LOOK_EVERY = 0.5  # seconds
SCHEDSTAT = Path("/proc/self/schedstat")  # nanoseconds with a processor, and without one; of Linux


def own_times() -> tuple[int, int] | None:
    """Nanoseconds that the main thread has run, and has waited for a processor; None where the system does not say."""
    try:
        ran, waited, _ = SCHEDSTAT.read_text(encoding="ascii").split()
        return int(ran), int(waited)
    except (OSError, ValueError):
        return None


class Pace:
    """Of the lines of all batches of a process."""

    def __init__(
        self, times: Callable[[], tuple[int, int] | None] = own_times, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_busy = False
        self._times = times
        self._clock = clock
        self._before = times()
        self._looks_at = clock() + LOOK_EVERY
        self._next = 0.0  # when the next line may begin on a busy machine

    def delay(self) -> float:
        """The seconds after which the next line may begin. Each question is for another line."""
        now = self._clock()
        if now >= self._looks_at:
            self._look(now)
        if not self.is_busy:
            return 0.0
        begins = max(now, self._next)
        self._next = begins + 1 / BUSY_RATE
        return begins - now

    def _look(self, now: float) -> None:
        self._looks_at = now + LOOK_EVERY
        times, before = self._times(), self._before
        self._before = times
        if times is None or before is None:
            self.is_busy = False
            return
        ran, waited = times[0] - before[0], times[1] - before[1]
        self.is_busy = waited > BUSY_SHARE * (ran + waited)

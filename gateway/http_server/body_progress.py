"""The rate at which the body of a request arrives."""

from __future__ import annotations

from collections import deque
from typing import Final

from gateway.http_server.limits import ServerLimits

DRIPS_AFTER: Final = 0.5  # seconds in which a body may begin
STEPS: Final = 4  # marks per window of the rate: the window is at most a quarter longer than its limit says


class BodyProgress:
    """The body bytes of one connection, and the times that decide whether a body is too slow.

    The minimum rate applies to the last `body_idle_timeout` seconds, not to the whole body: with an average over the
    whole body, a client that sends most of it at once could keep the rest for hours. The time in which the application
    is busy with the body counts for no limit. Times are read from the server's coarse clock, except that time.
    """

    __slots__ = ("_marks", "_stopped", "began", "received", "size", "stirred")

    size: int  # bytes of the body so far
    received: int  # bytes on the connection at the last check
    began: float  # when reading of the body began
    stirred: float  # when bytes last arrived
    _stopped: float  # when the application became busy
    _marks: deque[tuple[float, int]] | None  # times since `began`, and sizes then; None until the first check

    def begin(self, received: int, now: float) -> None:
        """Start with a new body. `received` is the number of bytes that the connection has received so far."""
        self.size = 0
        self.received = received
        self.began = self.stirred = now
        self._marks = None

    def late(self, received: int, now: float, timeout: float | None, limits: ServerLimits) -> bool:
        """Whether the body exceeds its time, is below the minimum rate, or has stopped.

        The minimum rate and the total time of the server apply only to a body without its own timeout.
        """
        if received != self.received:
            self.received, self.stirred = received, now
        elapsed = now - self.began
        if timeout is not None:
            late = elapsed > timeout
        else:
            late = elapsed > limits.body_total_timeout or self._too_slow(elapsed, limits)
        return late or now - self.stirred > limits.body_idle_timeout

    def drips(self, now: float, limits: ServerLimits) -> bool:
        """Whether the body has arrived below the minimum rate up to now, on average."""
        elapsed = now - self.began
        return elapsed > DRIPS_AFTER and self.size < limits.min_body_rate * elapsed

    def stop_clock(self, now: float) -> None:
        """The application is busy from now on; `late` is not called until `start_clock`."""
        self._stopped = now

    def start_clock(self, now: float) -> None:
        """The application takes more of the body again; the client is not the cause of the time between."""
        self.began += now - self._stopped
        self.stirred = now

    def _too_slow(self, elapsed: float, limits: ServerLimits) -> bool:
        """Whether the rate over the last window is below the minimum."""
        marks, window = self._marks, limits.body_idle_timeout
        if marks is None:
            marks = self._marks = deque([(0.0, 0)])
        if elapsed - marks[-1][0] >= window / STEPS:
            marks.append((elapsed, self.size))
        while len(marks) > 1 and elapsed - marks[1][0] >= window:
            marks.popleft()
        began, size = marks[0]
        return elapsed - began > window and self.size - size < limits.min_body_rate * (elapsed - began)

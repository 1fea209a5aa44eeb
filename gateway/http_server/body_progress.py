"""How fast a request's body arrives."""

from __future__ import annotations

from gateway.http_server.limits import ServerLimits


class BodyProgress:
    """One connection's count of body bytes, with the times that decide whether a body is too slow.

    The connection sets all four fields when a body begins. Times are of its server's coarse clock.
    """

    __slots__ = ("began", "received", "size", "stirred")

    def __init__(self) -> None:
        self.size = 0  # bytes of the body so far
        self.received = 0  # bytes on the connection at the last check
        self.began = self.stirred = 0.0  # when the body was asked for; when its last byte came

    def late(self, received: int, now: float, timeout: float | None, limits: ServerLimits) -> bool:
        """Whether the body exceeds its own timeout, or else is below the minimum rate, or stands still."""
        if received != self.received:
            self.received, self.stirred = received, now
        elapsed = now - self.began
        if timeout is not None:
            late = elapsed > timeout
        else:
            late = elapsed > limits.body_idle_timeout and self.size < limits.min_body_rate * elapsed
        return late or now - self.stirred > limits.body_idle_timeout

    def stop_clock(self, now: float, tick: float) -> None:
        """Leave one tick out: the application is busy, and the client is not to blame."""
        self.stirred = now
        self.began += tick

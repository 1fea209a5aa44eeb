"""How fast a request's body arrives."""

from __future__ import annotations

from gateway.http_server.limits import ServerLimits


class BodyProgress:
    """One connection's count of body bytes, with the times that decide whether a body is too slow.

    Times are of its server's coarse clock.
    """

    __slots__ = ("began", "received", "size", "stirred")

    size: int  # bytes of the body so far
    received: int  # bytes on the connection at the last check
    began: float  # when the body was asked for
    stirred: float  # when its last byte came

    def begin(self, received: int, now: float) -> None:
        """A body is asked for; the connection has received so many bytes."""
        self.size = 0
        self.received = received
        self.began = self.stirred = now

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

"""The rate at which the body of a request arrives."""

from __future__ import annotations

from gateway.http_server.limits import ServerLimits


class BodyProgress:
    """The body bytes of one connection, and the times that decide whether a body is too slow.

    Times are read from the server's coarse clock.
    """

    __slots__ = ("began", "received", "size", "stirred")

    size: int  # bytes of the body so far
    received: int  # bytes on the connection at the last check
    began: float  # when reading of the body began
    stirred: float  # when bytes last arrived

    def begin(self, received: int, now: float) -> None:
        """Start with a new body. `received` is the number of bytes that the connection has received so far."""
        self.size = 0
        self.received = received
        self.began = self.stirred = now

    def late(self, received: int, now: float, timeout: float | None, limits: ServerLimits) -> bool:
        """Whether the body exceeds its own timeout, is below the minimum rate, or has stopped.

        The minimum rate applies only to a body without its own timeout.
        """
        if received != self.received:
            self.received, self.stirred = received, now
        elapsed = now - self.began
        if timeout is not None:
            late = elapsed > timeout
        else:
            late = elapsed > limits.body_idle_timeout and self.size < limits.min_body_rate * elapsed
        return late or now - self.stirred > limits.body_idle_timeout

    def stop_clock(self, now: float, tick: float) -> None:
        """Do not count one tick, because the application is busy and the client is not the cause."""
        self.stirred = now
        self.began += tick

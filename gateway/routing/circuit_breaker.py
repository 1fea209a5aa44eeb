"""Whether one place should be called now: a circuit breaker per target, per credential and per provider.

A place that fails five times in a row, or half of its last twenty calls within ten seconds, is left alone for 30
seconds, twice as long after each failed probe, five minutes at most; then one call probes it. An upstream that asks to
slow down is left alone as long as it asks, five minutes at most. The caller's own mistakes never count, nor does the
end of a call that was under way when the place was given up. `Circuit.above` is the wider place whose state holds too:
a target's credential, a credential's provider.
Sharp edge: times are monotonic seconds of this process; what travels between processes are seconds left.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from gateway.errors import (
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
)

IN_A_ROW = 5
WINDOW, WINDOW_SECONDS = 20, 10.0
FAULTS_WITHIN = 60.0  # seconds in which as many faults of its code quarantine a provider
OPEN_FOR, OPEN_AT_MOST = 30.0, 300.0  # seconds, the first time and at most
REFUSED_FOR = 60.0  # seconds, the first time, for a credential that was refused
PROBE_WITHIN = 60.0  # seconds after which a probe that says nothing makes room for another
NEVER = -math.inf
SMOOTHING = 0.2  # weight of the newest latency

Cause = Literal["failures", "limited", "credential", "credit", "plugin"]


class Place(Struct, frozen=True):
    """What a circuit guards; empty names stand for every one."""

    provider: str
    credential: int = -1
    model: str = ""

    def __str__(self) -> str:
        credential = f"#{self.credential}" if self.credential >= 0 else ""
        return f"{self.provider}{credential}" + (f"/{self.model}" if self.model else "")


class Circuit:
    """One place's state, and the two figures by which targets are ordered."""

    __slots__ = (
        "_faults",
        "_probed",
        "_recent",
        "_row",
        "_span",
        "_told",
        "above",
        "cause",
        "in_flight",
        "latency",
        "place",
        "until",
    )

    def __init__(self, place: Place, above: Circuit | None, told: Callable[[Circuit], None]) -> None:
        self.place = place
        self.above = above
        self.cause: Cause | None = None  # None: closed
        self.until = 0.0
        self.in_flight = 0
        self.latency = 0.0  # seconds to the first chunk or answer, smoothed; 0 before the first
        self._row = 0
        self._span = 0.0  # seconds it was left alone last, unless it was well since
        self._probed = NEVER
        self._recent: deque[tuple[float, bool]] = deque(maxlen=WINDOW)
        self._faults: deque[float] = deque(maxlen=IN_A_ROW)  # when the provider's own code broke
        self._told = told

    # Asking ----------------------------------------------------------------------------------------------------------

    def ready(self, now: float) -> bool:
        """Whether a call may go there, as a probe if need be."""
        if self.cause is not None:
            if now < self.until or now < self._probed + PROBE_WITHIN:
                return False
            if self.cause == "limited":
                self._close()  # the time it asked for is over: nothing is to be proved
        return self.above is None or self.above.ready(now)

    def closed(self) -> bool:
        """Whether nothing is held against the place; cheaper than `ready`."""
        return self.cause is None and (self.above is None or self.above.closed())

    def blocking(self) -> Circuit:
        """The open circuit that keeps calls away longest."""
        above = self.above.blocking() if self.above is not None else self
        return above if above.until > self.until else self

    # Telling ---------------------------------------------------------------------------------------------------------

    def enter(self, now: float) -> None:
        """A call goes there."""
        self.in_flight += 1
        level: Circuit | None = self
        while level is not None:
            if level.cause is not None:
                level._probed = now
            level = level.above

    def leave(self) -> None:
        """It is over."""
        self.in_flight -= 1

    def abandoned(self) -> None:
        """It is over and says nothing: its caller has left, or a rival was quicker."""
        self.in_flight -= 1
        self._end_probe()

    def succeeded(self, now: float, seconds: float) -> None:
        """The first chunk or the answer came after so many seconds."""
        self.latency += (seconds - self.latency) * SMOOTHING if self.latency else seconds
        self._row = 0
        self._recent.append((now, True))
        level: Circuit | None = self
        while level is not None:
            if level.cause is not None and now >= level.until:  # else the call is older than what was found out since
                level._close()
            level = level.above

    def failed(self, error: GatewayError, now: float, *, of_plugin: bool = False) -> None:
        """An attempt ended with that error, which may be the caller's fault; `of_plugin`: the provider's code broke."""
        self._end_probe()
        if not isinstance(error, UpstreamError) or not error.retryable:
            return
        if isinstance(error, UpstreamRateLimited):
            self.open("limited", now, error.retry_after or 1.0)
        elif isinstance(error, UpstreamAuthError):
            (self.above or self).refused("credential", now)
        elif isinstance(error, UpstreamOverloaded) and error.code == "service_unavailable":
            (self.above or self).refused("credit", now)
        elif of_plugin:
            self._widest().fault(now)
        else:
            self.count("failures", now)

    def count(self, cause: Cause, now: float) -> None:
        """One failure of the place itself."""
        if self._knows(cause, now):
            return
        self._row += 1
        self._recent.append((now, False))
        if self.cause == cause or self._row >= IN_A_ROW or self._half_failed(now):
            self._open_longer(cause, now, OPEN_FOR)

    def refused(self, cause: Cause, now: float) -> None:
        """The upstream will not serve this credential: nothing that another try mends, so it is probed rarely."""
        if not self._knows(cause, now):
            self._open_longer(cause, now, REFUSED_FOR)

    def fault(self, now: float) -> None:
        """The provider's own code broke, or held the loop: answers in between do not excuse it."""
        if self._knows("plugin", now):
            return
        self._faults.append(now)
        if self.cause == "plugin" or (len(self._faults) == IN_A_ROW and self._faults[0] > now - FAULTS_WITHIN):
            self._open_longer("plugin", now, OPEN_FOR)

    def _knows(self, cause: Cause, now: float) -> bool:
        """Whether it is open for that already: then this is the end of a call that was under way, and no probe."""
        return self.cause == cause and now < self.until

    def _open_longer(self, cause: Cause, now: float, first: float) -> None:
        self.open(cause, now, min(max(first, 2 * self._span), OPEN_AT_MOST))

    def open(self, cause: Cause, now: float, seconds: float) -> None:
        """Leave the place alone for so long, and say so."""
        if self.apply(cause, now, seconds):
            self._told(self)

    def apply(self, cause: Cause, now: float, seconds: float) -> bool:
        """The same without saying so: another process has found out. False when it changes nothing."""
        until = now + min(max(seconds, 0.0), OPEN_AT_MOST)
        if self.cause is not None and until <= self.until:
            return False
        self.cause, self.until, self._probed = cause, until, NEVER
        if cause != "limited":  # which says nothing about how it fares
            self._span = until - now
        return True

    def recovered(self) -> None:
        """Another process has found the place well."""
        self.cause, self.until, self._row, self._span, self._probed = None, 0.0, 0, 0.0, NEVER
        self._recent.clear()
        self._faults.clear()

    def _close(self) -> None:
        self.recovered()
        self._told(self)

    def _end_probe(self) -> None:
        level: Circuit | None = self
        while level is not None:
            level._probed = NEVER
            level = level.above

    def _widest(self) -> Circuit:
        return self if self.above is None else self.above._widest()

    def _half_failed(self, now: float) -> bool:
        recent = self._recent
        if len(recent) < WINDOW or recent[0][0] < now - WINDOW_SECONDS:
            return False
        return sum(not all_closed for _, all_closed in recent) * 2 >= WINDOW

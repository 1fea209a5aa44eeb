"""Whether a target may be called now: a circuit breaker per target, per credential and per provider.

A circuit opens after five failures in a row, or when half of its last twenty calls within ten seconds failed. It stays
open for 30 seconds, twice as long after each failed probe, and at most five minutes. Then one call probes it. When an
upstream asks the gateway to slow down, the circuit stays open for the time it asks for, at most five minutes. The
caller's own mistakes never count. A call that was running when the circuit opened does not count either.
`Circuit.above` is the wider circuit, whose state applies too: of a target's credential, of a credential's provider.
Sharp edge: times are monotonic seconds of this process; other processes get the seconds that are left.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from gateway import errors

IN_A_ROW = 5
WINDOW, WINDOW_SECONDS = 20, 10.0
FAULTS_WITHIN = 60.0  # seconds in which `IN_A_ROW` faults of its code quarantine a provider
OPEN_FOR, OPEN_AT_MOST = 30.0, 300.0  # seconds, the first time and at most
REFUSED_FOR = 60.0  # seconds, the first time, for a refused credential
PROBE_WITHIN = 60.0  # seconds after which a probe without a result is replaced by another
NEVER = -math.inf
SMOOTHING = 0.2  # weight of the newest latency

Cause = Literal["failures", "limited", "credential", "credit", "plugin"]


class CircuitKey(Struct, frozen=True):
    """What a circuit belongs to: a provider, a credential (-1: all of them) and a model (empty: all of them)."""

    provider: str
    credential: int = -1
    model: str = ""

    def __str__(self) -> str:
        credential = f"#{self.credential}" if self.credential >= 0 else ""
        return f"{self.provider}{credential}" + (f"/{self.model}" if self.model else "")


class Circuit:
    """The state of one circuit, and the two figures by which targets are ordered: calls in flight and latency."""

    def __init__(self, key: CircuitKey, above: Circuit | None, on_change: Callable[[Circuit], None]) -> None:
        self.key = key
        self.above = above
        self.levels: tuple[Circuit, ...] = (self,) if above is None else (self, *above.levels)
        self.cause: Cause | None = None  # None: closed
        self.until = 0.0
        self.in_flight = 0
        self.latency = 0.0  # seconds to the first chunk or answer, smoothed; 0 before the first
        self._row = 0
        self._span = 0.0  # seconds it was open last; 0 after a recovery
        self._probed = NEVER
        self._recent: deque[tuple[float, bool]] = deque(maxlen=WINDOW)
        self._faults: deque[float] = deque(maxlen=IN_A_ROW)  # times of failures in the provider's own code
        self._on_change = on_change

    # State -----------------------------------------------------------------------------------------------------------

    def ready(self, now: float) -> bool:
        """Whether a call may use it; the call may be a probe."""
        if self.cause is not None:
            if now < self.until or now < self._probed + PROBE_WITHIN:
                return False
            if self.cause == "limited":
                self._close()  # the requested time is over; no probe is needed
        return self.above is None or self.above.ready(now)

    def closed(self) -> bool:
        """Whether this circuit and those above it are closed; cheaper than `ready`."""
        circuit: Circuit | None = self
        while circuit is not None:
            if circuit.cause is not None:
                return False
            circuit = circuit.above
        return True

    def blocking(self) -> Circuit:
        """Of this circuit and those above it, the one that stays open longest."""
        return max(self.levels, key=lambda level: level.until)

    # Results ---------------------------------------------------------------------------------------------------------

    def enter(self, now: float) -> None:
        """A call begins."""
        self.in_flight += 1
        for level in self.levels:
            if level.cause is not None:
                level._probed = now

    def leave(self) -> None:
        """The call has ended."""
        self.in_flight -= 1

    def abandoned(self) -> None:
        """The call has ended without a result: its client disconnected, or a hedged attempt was faster."""
        self.in_flight -= 1
        self._end_probe()

    def succeeded(self, now: float, seconds: float) -> None:
        """The first chunk or the answer came after `seconds`."""
        self.latency += (seconds - self.latency) * SMOOTHING if self.latency else seconds
        self._row = 0
        self._recent.append((now, True))
        for level in self.levels:
            if level.cause is not None and now >= level.until:  # otherwise the call began before the circuit opened
                level._close()

    def failed(self, error: errors.GatewayError, now: float, *, of_plugin: bool = False) -> None:
        """An attempt ended with `error`, which may be the caller's fault; `of_plugin`: the provider's code failed."""
        self._end_probe()
        if not isinstance(error, errors.UpstreamError) or not error.retryable:
            return
        if isinstance(error, errors.UpstreamRateLimited):
            self.open("limited", now, error.retry_after or 1.0)
        elif isinstance(error, errors.UpstreamAuthError):
            (self.above or self).refused("credential", now)
        elif isinstance(error, errors.UpstreamOverloaded) and error.code == "service_unavailable":
            (self.above or self).refused("credit", now)
        elif of_plugin:
            self.levels[-1].fault(now)
        else:
            self.count("failures", now)

    def count(self, cause: Cause, now: float) -> None:
        """Count one failure of the target itself."""
        if self._is_open_for(cause, now):
            return
        self._row += 1
        self._recent.append((now, False))
        if self.cause == cause or self._row >= IN_A_ROW or self._half_failed(now):
            self._open_longer(cause, now, OPEN_FOR)

    def refused(self, cause: Cause, now: float) -> None:
        """The upstream refused this credential. Another attempt does not help, so it is probed rarely."""
        if not self._is_open_for(cause, now):
            self._open_longer(cause, now, REFUSED_FOR)

    def fault(self, now: float) -> None:
        """The provider's own code failed, or blocked the event loop. Successful calls do not reset this count."""
        if self._is_open_for("plugin", now):
            return
        self._faults.append(now)
        if self.cause == "plugin" or (len(self._faults) == IN_A_ROW and self._faults[0] > now - FAULTS_WITHIN):
            self._open_longer("plugin", now, OPEN_FOR)

    def _is_open_for(self, cause: Cause, now: float) -> bool:
        """Whether it is already open for that cause: then the failed call was running before, and was no probe."""
        return self.cause == cause and now < self.until

    def _open_longer(self, cause: Cause, now: float, first: float) -> None:
        self.open(cause, now, min(max(first, 2 * self._span), OPEN_AT_MOST))

    def open(self, cause: Cause, now: float, seconds: float) -> None:
        """Open the circuit for `seconds` and report the change."""
        if self.apply(cause, now, seconds):
            self._on_change(self)

    def apply(self, cause: Cause, now: float, seconds: float) -> bool:
        """Open the circuit without a report, for an event of another process. False when nothing changes."""
        until = now + min(max(seconds, 0.0), OPEN_AT_MOST)
        if self.cause is not None and until <= self.until:
            return False
        self.cause, self.until, self._probed = cause, until, NEVER
        if cause != "limited":  # a rate limit says nothing about failures
            self._span = until - now
        return True

    def recovered(self) -> None:
        """Close the circuit and clear its counts, without a report."""
        self.cause, self.until, self._row, self._span, self._probed = None, 0.0, 0, 0.0, NEVER
        self._recent.clear()
        self._faults.clear()

    def _close(self) -> None:
        self.recovered()
        self._on_change(self)

    def _end_probe(self) -> None:
        for level in self.levels:
            level._probed = NEVER

    def _half_failed(self, now: float) -> bool:
        recent = self._recent
        if len(recent) < WINDOW or recent[0][0] < now - WINDOW_SECONDS:
            return False
        return sum(not succeeded for _, succeeded in recent) * 2 >= WINDOW

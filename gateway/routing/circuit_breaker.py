"""Whether a target may be called now: a circuit breaker per target, per credential and per provider.

A circuit opens after five failures in a row, or when half of its last twenty calls within ten seconds failed;
`failure_count` says which failures count. It stays open for 30 seconds, twice as long after each failed probe, and at
most five minutes. Then one call probes it. When an upstream asks the gateway to slow down, the circuit stays open for
the time it asks for, at most five minutes. The caller's own mistakes never count. A call that was running when the
circuit opened does not count either. `Circuit.above` is the wider circuit, whose state applies too: of a target's
credential, of a credential's provider. A target is one upstream model with one credential and one capability.
Sharp edge: times are monotonic seconds of this process; other processes get the seconds that are left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from gateway import errors
from gateway.routing.account_outages import AccountOutages, OnOutage
from gateway.routing.failure_count import FAULTS_WITHIN, IN_A_ROW, NEVER, FailureCount

OPEN_FOR, OPEN_AT_MOST = 30.0, 300.0  # seconds, the first time and at most
REFUSED_FOR = 60.0  # seconds, the first time, for a refused credential
PROBE_WITHIN = 60.0  # seconds after which a probe without a result is replaced by another
SMOOTHING = 0.2  # weight of the newest latency

Cause = Literal["failures", "limited", "credential", "credit", "plugin"]


#: What the upstream says of a credential. It holds for every machine; other causes hold for the machine that met them.
SAID_BY_UPSTREAM = frozenset({"limited", "credential", "credit"})


class CircuitKey(Struct, frozen=True):
    """What a circuit belongs to: a provider, a credential (-1: all of them), a model and a capability (empty: all)."""

    provider: str
    credential: int = -1
    model: str = ""
    capability: str = ""

    @property
    def number(self) -> int:
        """The number of the credential as it is shown everywhere: from 1; 0 for all of them."""
        return self.credential + 1

    @property
    def field(self) -> str:
        """Its name in the store, which all releases share: credentials count from 0 there."""
        return self._text(self.credential)

    def __str__(self) -> str:
        return self._text(self.number or -1)

    def _text(self, number: int) -> str:
        credential = f"#{number}" if number >= 0 else ""
        capability = f" ({self.capability})" if self.capability else ""
        return f"{self.provider}{credential}" + (f"/{self.model}{capability}" if self.model else "")


class Circuit:
    """The state of one circuit, and the two figures by which targets are ordered: calls in flight and latency."""

    def __init__(
        self,
        key: CircuitKey,
        above: Circuit | None,
        on_change: Callable[[Circuit], None],
        *,
        on_outage: OnOutage | None = None,
    ) -> None:
        self.key = key
        self.outages = AccountOutages(on_outage)
        self.above = above
        self.levels: tuple[Circuit, ...] = (self,) if above is None else (self, *above.levels)
        self.cause: Cause | None = None  # None: closed
        self.until = 0.0
        self.in_flight = 0
        self.latency = 0.0  # seconds to the first chunk or answer, smoothed; 0 before the first
        self.count = FailureCount()
        self.last_cause: Cause | None = None  # why it was open last
        self.for_all = False  # the cause holds for every machine
        self._span = 0.0  # seconds it was open last; 0 after a recovery
        self._probed = NEVER
        self._stalls: deque[float] = deque(maxlen=IN_A_ROW)  # times at which the provider's code blocked the loop
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
            if level.cause is not None and now >= level.until:  # otherwise its success does not close the circuit
                level._probed = now

    def leave(self) -> None:
        """The call has ended."""
        self.in_flight -= 1

    def abandoned(self) -> None:
        """The call has ended without a result: its client disconnected, or a hedged attempt was faster."""
        self.in_flight -= 1
        self._end_probe()

    def succeeded(self, now: float, seconds: float, account: str = "") -> None:
        """The first chunk or the answer came after `seconds`, for `account`."""
        self.latency += (seconds - self.latency) * SMOOTHING if self.latency else seconds
        self.count.succeeded(now, account)
        if self.outages.rows or self.outages.until:
            self.outages.answered()
        for level in self.levels:
            if level.cause is not None and now - seconds >= level.until:  # otherwise the call began before any probe
                level._close()

    def failed(
        self, error: errors.GatewayError, now: float, *, account: str = "", digest: int = 0, of_plugin: bool = False
    ) -> None:
        """An attempt for `account` ended with `error`, which may be the caller's fault.

        `digest`: of the request, 0 if it is not known. `of_plugin`: the provider's code failed.
        """
        self._end_probe()
        if not isinstance(error, errors.UpstreamError) or not error.retryable:
            return
        self.outages.failed(error, account, now)
        if isinstance(error, errors.UpstreamRateLimited):
            self.open("limited", now, error.retry_after or 1.0)
        elif isinstance(error, errors.UpstreamAuthError):
            (self.above or self).refused("credential", now, for_all=error.origin != "connection")
        elif isinstance(error, errors.UpstreamOverloaded) and error.code == "service_unavailable":
            (self.above or self).refused("credit", now)
        elif of_plugin:
            self._note_fault(account, digest, now)
        else:
            self._note_failure(error.origin, account, digest, now)

    def _note_failure(self, origin: errors.FailureOrigin, account: str, digest: int, now: float) -> None:
        if self._is_open_for("failures", now) or not self.count.counts(origin, account, digest, now):
            return
        if self.cause == "failures" or self.count.are_enough(now):
            self._open_longer("failures", now, OPEN_FOR)

    def _note_fault(self, account: str, digest: int, now: float) -> None:
        if self._is_open_for("plugin", now) or not self.count.fault(account, digest, now):
            return
        if self.cause == "plugin" or self.count.faults_are_enough():
            self._open_longer("plugin", now, OPEN_FOR)

    def refused(self, cause: Cause, now: float, *, for_all: bool = True) -> None:
        """The upstream refused this credential. Another attempt does not help, so it is probed rarely.

        `for_all`: the upstream said so, and not something on this machine's way to it.
        """
        if not self._is_open_for(cause, now):
            self._open_longer(cause, now, REFUSED_FOR, for_all=for_all)

    def stalled(self, now: float) -> None:
        """The provider's code blocked the event loop. Successful calls do not reset this count."""
        if self._is_open_for("plugin", now):
            return
        self._stalls.append(now)
        if self.cause == "plugin" or (len(self._stalls) == IN_A_ROW and self._stalls[0] > now - FAULTS_WITHIN):
            self._open_longer("plugin", now, OPEN_FOR)

    def _is_open_for(self, cause: Cause, now: float) -> bool:
        """Whether it is already open for that cause: then the failed call was running before, and was no probe."""
        return self.cause == cause and now < self.until

    def _open_longer(self, cause: Cause, now: float, first: float, *, for_all: bool = True) -> None:
        self.open(cause, now, min(max(first, 2 * self._span), OPEN_AT_MOST), for_all=for_all)

    def open(self, cause: Cause, now: float, seconds: float, *, for_all: bool = True) -> None:
        """Open the circuit for `seconds` and report the change."""
        if self.apply(cause, now, seconds):
            self.for_all = for_all and cause in SAID_BY_UPSTREAM
            self._on_change(self)

    def apply(self, cause: Cause, now: float, seconds: float) -> bool:
        """Open the circuit without a report, for an event of another process. False when nothing changes."""
        until = now + min(max(seconds, 0.0), OPEN_AT_MOST)
        if self.cause is not None and until <= self.until:
            return False
        if self.cause is None:
            self.count.opened()
        self.cause, self.until, self._probed = cause, until, NEVER
        self.last_cause, self.for_all = cause, cause in SAID_BY_UPSTREAM
        if cause != "limited":  # a rate limit says nothing about failures
            self._span = until - now
        return True

    def due(self, now: float) -> None:
        """Let the next call probe the circuit if it is open, without a report."""
        if self.cause is not None:
            self.until, self._probed = min(self.until, now), NEVER

    def recovered(self) -> None:
        """Close the circuit and clear its counts, without a report."""
        self.cause, self.until, self._span, self._probed = None, 0.0, 0.0, NEVER
        self.count.clear()
        self.outages.clear()
        self._stalls.clear()

    def _close(self) -> None:
        self.recovered()
        self._on_change(self)

    def _end_probe(self) -> None:
        for level in self.levels:
            level._probed = NEVER

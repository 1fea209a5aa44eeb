"""Who is tried next, and when: the order of one call's attempts after each kind of failure.

Another target comes before another credential of the same one, unless the failure was the credential's own; when every
place was tried, one that failed for a moment is tried again after a pause. Three attempts at most, each extra one out
of the model's retry budget, and all of them within the time of one. A place that was given up since the options were
found is passed over. Sharp edge: after a timeout the same place is not asked again, for it may have done, and billed,
the work.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Sequence
from typing import Generic, Protocol, TypeVar

from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    ProviderFailed,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from gateway.metrics import Metrics
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.router import Candidate, unavailable

MAX_ATTEMPTS = 3  # the first one and at most two more
PAUSE = 0.1  # seconds before the same place is asked again, more or less
LONGEST_PAUSE = 5.0  # seconds that an upstream may ask us to wait while the caller waits
GRACE = 0.01  # seconds; a timer may be early by a millisecond


class Placed(Protocol):
    """Anything prepared for one candidate."""

    @property
    def candidate(self) -> Candidate: ...


F = TypeVar("F", bound=Placed)
T = TypeVar("T")


class RetryPolicy(Generic[F]):
    """The attempts of one call; it begins with the first option taken: `now`."""

    def __init__(
        self, options: Sequence[F], tried: list[Candidate], budget: RetryBudget, *, started: float, begun: bool = False
    ) -> None:
        self._tried = tried
        self._budget = budget
        self._started = started
        self._model = options[0].candidate.model
        self._untried: Sequence[F] = options[1:]
        self._count = len(tried)  # more than none where a stream is continued
        if begun:  # the first option is among the tried
            self.now = options[0]
        elif options[0].candidate.circuit.closed():
            self.now = self._enter(options[0])
        else:
            self._untried = options
            self.now = self._take(self._first_ready(options))

    async def after(self, failure: GatewayError, metrics: Metrics) -> F | None:
        """The next attempt after that failure, once its time has come; None when there is none."""
        following = self._next(failure)
        if following is None:
            return None
        again = any(candidate is following.candidate for candidate in self._tried)
        pause = self._pause(failure) if again else 0.0
        if pause >= self.left():
            return None
        if again:
            await asyncio.sleep(pause)
        if not _is_ready(following) or not self._budget.spend():
            return None
        metrics.inc("gateway_extra_attempts", (self._model.name, "retry" if again else "fallback"))
        return self._take(following)

    def left(self) -> float:
        """Seconds until the call must have its answer, or its first chunk."""
        return self._started + self._tried[0].target.timeouts.total - time.monotonic()

    def in_time(self, attempt: Awaitable[T]) -> Awaitable[T]:
        """An attempt; one beyond the first has the time that those before it left."""
        return attempt if self._count == 1 else self._limited(attempt)  # the first is bounded by its own timeouts

    async def _limited(self, attempt: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.left()):
                return await attempt
        except TimeoutError:
            raise UpstreamTimeout(detail="no time is left for another attempt") from None

    def may_hedge(self) -> bool:
        """Whether another target could be raced against this one."""
        return self._count < 1 + self._model.retries and self._other_place() is not None

    def hedge(self, metrics: Metrics) -> F | None:
        """The rival of the attempt that is running, within the budget."""
        rival = self._other_place()
        if rival is None or not self._budget.spend():
            return None
        metrics.inc("gateway_extra_attempts", (self._model.name, "hedge"))
        return self._take(rival)

    def won(self, candidate: Candidate) -> None:
        """The winner of a race stands last, as whoever served always does."""
        self._tried[:] = [*(other for other in self._tried if other is not candidate), candidate]

    def _take(self, option: F) -> F:
        self._untried = [other for other in self._untried if other is not option]
        return self._enter(option)

    def _enter(self, option: F) -> F:
        self.now = option
        self._count += 1
        self._tried.append(option.candidate)
        return option

    def _first_ready(self, options: Sequence[F]) -> F:
        """Since they were found, others may have given a place up, or begun to probe it."""
        ready = next(filter(_is_ready, options), None)
        if ready is None:
            raise unavailable((option.candidate for option in options), time.monotonic())
        return ready

    def _next(self, failure: GatewayError) -> F | None:
        if self._count > self._model.retries:
            return None
        if isinstance(failure, ContextLengthExceeded):
            return self._roomier()
        if not isinstance(failure, UpstreamError) or not failure.retryable:
            return None
        untried = next(filter(_is_ready, self._untried), None)
        if isinstance(failure, UpstreamRateLimited | UpstreamAuthError | UpstreamOverloaded) and untried is not None:
            return untried
        return self._other_place() or untried or self._again(failure)

    def _other_place(self) -> F | None:
        """The next target that was not tried yet, with whichever credential."""
        seen = {id(candidate.target) for candidate in self._tried}
        others = (option for option in self._untried if id(option.candidate.target) not in seen)
        return next(filter(_is_ready, others), None)

    def _roomier(self) -> F | None:
        """A fallback whose window is larger than that of the model for which the prompt was too long."""
        window = self.now.candidate.model.context_window or 0
        roomier = (option for option in self._untried if (option.candidate.model.context_window or 0) > window)
        return next(filter(_is_ready, roomier), None)

    def _again(self, failure: GatewayError) -> F | None:
        """The same place once more, where the failure says nothing about the next try and cost nothing."""
        if isinstance(failure, UpstreamAuthError | UpstreamTimeout | UpstreamInvalidResponse | ProviderFailed):
            return None
        if (failure.retry_after or 0.0) > LONGEST_PAUSE:
            return None
        return self.now

    def _pause(self, failure: GatewayError) -> float:
        jitter = PAUSE * self._count * (0.5 + random.random())  # noqa: S311 - spreads load, guards nothing
        return max((failure.retry_after or 0.0) + GRACE, jitter)


def _is_ready(option: Placed) -> bool:
    circuit = option.candidate.circuit
    return circuit.closed() or circuit.ready(time.monotonic())

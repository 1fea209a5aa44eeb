"""Who is tried next, and when: the order of one call's attempts after each kind of failure.

Another target comes before another credential of the same one, unless the failure was the credential's own; when every
place was tried, one that failed for a moment is tried again after a pause. Three attempts at most, each extra one out
of the model's retry budget. Sharp edge: after a timeout the same place is not asked again, for it may have done, and
billed, the work.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from gateway.metrics import Metrics
from gateway.retry_budget import RetryBudget
from gateway.routing import Candidate

MAX_ATTEMPTS = 3  # the first one and at most two more
PAUSE = 0.1  # seconds before the same place is asked again, more or less
LONGEST_PAUSE = 5.0  # seconds that an upstream may ask us to wait while the caller waits


class Placed(Protocol):
    """Anything prepared for one candidate."""

    @property
    def candidate(self) -> Candidate: ...


F = TypeVar("F", bound=Placed)


class Succession(Generic[F]):
    """The attempts of one call; it begins with the first option taken."""

    def __init__(self, options: Sequence[F], tried: list[Candidate], budget: RetryBudget) -> None:
        self._tried = tried
        self._budget = budget
        self._untried = options[1:]
        self._now: F = options[0]
        self._count = 1
        self._started = time.monotonic()
        self._model = options[0].candidate.model
        tried.append(options[0].candidate)

    async def after(self, failure: GatewayError, metrics: Metrics) -> F | None:
        """The next attempt after that failure, once its time has come; None when there is none."""
        following = self._next(failure)
        if following is None or not self._budget.spend():
            return None
        again = any(candidate is following.candidate for candidate in self._tried)
        pause = self._pause(failure) if again else 0.0
        if pause:
            if time.monotonic() + pause > self._started + self._model_timeout():
                return None
            await asyncio.sleep(pause)
        metrics.inc("gateway_extra_attempts", (self._model.name, "retry" if pause else "fallback"))
        return self._take(following)

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
        self._now = option
        self._count += 1
        self._tried.append(option.candidate)
        return option

    def _next(self, failure: GatewayError) -> F | None:
        if self._count > self._model.retries:
            return None
        if isinstance(failure, ContextLengthExceeded):
            return self._roomier()
        if not isinstance(failure, UpstreamError) or not failure.retryable:
            return None
        if isinstance(failure, UpstreamRateLimited | UpstreamAuthError | UpstreamOverloaded) and self._untried:
            return self._untried[0]
        return self._other_place() or (self._untried[0] if self._untried else self._again(failure))

    def _other_place(self) -> F | None:
        """The next target that was not tried yet, with whichever credential."""
        seen = {id(candidate.target) for candidate in self._tried}
        return next((option for option in self._untried if id(option.candidate.target) not in seen), None)

    def _roomier(self) -> F | None:
        """A fallback whose window is larger than that of the model for which the prompt was too long."""
        window = self._now.candidate.model.context_window or 0
        return next((o for o in self._untried if (o.candidate.model.context_window or 0) > window), None)

    def _again(self, failure: GatewayError) -> F | None:
        """The same place once more, where the failure says nothing about the next try and cost nothing."""
        if isinstance(failure, UpstreamAuthError | UpstreamTimeout | UpstreamInvalidResponse):
            return None
        if (failure.retry_after or 0.0) > LONGEST_PAUSE:
            return None
        return self._now

    def _pause(self, failure: GatewayError) -> float:
        jitter = PAUSE * self._count * (0.5 + random.random())  # noqa: S311 - spreads load, guards nothing
        return max(failure.retry_after or 0.0, jitter)

    def _model_timeout(self) -> float:
        return self._now.candidate.target.timeouts.total

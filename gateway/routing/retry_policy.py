"""Which candidate is tried next, and when: the order of one call's attempts after each kind of failure.

Another target comes before another credential of the same target, unless the failure belongs to the credential. A
fallback is another model, so the requested one gets one more attempt before it: soon after a short failure, or when the
wait is over for which a rate limit asks. When every candidate was tried, one with a temporary failure is tried again
after a pause. A call has at most three attempts; each extra one uses the model's retry budget, and all of them share
the time limit of one. A candidate whose circuit
opened meanwhile is skipped. Sharp edge: after a timeout the same target is not tried again, because it may have done
and billed the work.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from gateway import errors
from gateway.http_client.send_state import current
from gateway.metrics import Metrics
from gateway.routing.request_adaptation import Adapted
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.router import Candidate, unavailable

PAUSE = 0.1  # seconds before the same candidate is tried again, with jitter
LONGEST_PAUSE = 5.0  # longest wait in seconds that an upstream may ask for while the caller waits
SOON = (0.1, 0.5)  # seconds before the same model is tried once more in place of its fallback
GRACE = 0.01  # seconds; a timer may be early by a millisecond


GATEWAY_TIMEOUT = 504

F = TypeVar("F", bound=Adapted[Any])
T = TypeVar("T")


class RetryPolicy(Generic[F]):
    """The attempts of one call; `now` is the current one."""

    def __init__(
        self, options: Sequence[F], tried: list[Candidate], budget: RetryBudget, *, started: float, begun: bool = False
    ) -> None:
        self._tried = tried
        self._budget = budget
        self._started = started
        self._model = options[0].candidate.model
        self._options = options
        self._untried: Sequence[F] = options[1:]
        self._count = len(tried)  # above 0 where a stream is continued
        self._wait: float | None = None  # seconds before the one more attempt that precedes a fallback
        if begun:  # the first option is among the tried
            self.now = options[0]
        elif options[0].candidate.circuit.closed() and not options[0].candidate.circuit.outages:
            self.now = self._enter(options[0])
        else:
            self._untried = options
            self.now = self._take(self._first_ready(options))

    async def after(self, failure: errors.GatewayError, metrics: Metrics) -> F | None:
        """The next attempt after `failure`, returned after its pause; None when there is none."""
        following = self._next(failure)
        if following is None:
            return None
        again = any(candidate is following.candidate for candidate in self._tried)
        pause = 0.0 if not again else self._pause(failure) if self._wait is None else self._wait
        if pause >= self.left():
            return None
        if again:
            await asyncio.sleep(pause)
        if again and self._wait is not None and not _is_ready(following):
            fallback = self._next(failure)
            if fallback is None:
                return None
            following, again = fallback, False
        if not _is_ready(following) or not self._spend():
            return None
        metrics.inc("gateway_extra_attempts", (self._model.name, "retry" if again else "fallback"))
        return self._take(following)

    def left(self) -> float:
        """Seconds until the call must have its answer, or its first chunk."""
        return self._started + self._tried[0].target.timeouts.total - time.monotonic()

    def in_time(self, attempt: Awaitable[T]) -> Awaitable[T]:
        """The attempt; after the first, it has the time that is left."""
        return attempt if self._count == 1 else self._limited(attempt)  # the first has its own timeouts

    async def _limited(self, attempt: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.left()):
                return await attempt
        except TimeoutError:
            raise errors.UpstreamTimeout(detail="no time is left for another attempt") from None

    def may_hedge(self) -> bool:
        """Whether a second attempt may run beside this one."""
        return self._count < 1 + self._model.retries and self._other_target() is not None

    def hedge(self, metrics: Metrics) -> F | None:
        """The attempt to run beside the current one; None when there is none, or the budget is spent."""
        second = self._other_target()
        if second is None or not self._spend():
            return None
        metrics.inc("gateway_extra_attempts", (self._model.name, "hedge"))
        return self._take(second)

    def won(self, candidate: Candidate) -> None:
        """Put the candidate that answered last in `tried`, where the pipeline looks for it."""
        self._tried[:] = [*(other for other in self._tried if other is not candidate), candidate]

    def _spend(self) -> bool:
        return may_spend(self._budget, [option.candidate for option in self._options])

    def _take(self, option: F) -> F:
        self._untried = [other for other in self._untried if other is not option]
        return self._enter(option)

    def _enter(self, option: F) -> F:
        self.now = option
        self._count += 1
        self._tried.append(option.candidate)
        return option

    def _first_ready(self, options: Sequence[F]) -> F:
        """The first candidate whose circuit is ready; other calls may have opened or probed circuits meanwhile.

        One that keeps failing the account's calls is left out, unless this call is a probe or there is no other.
        """
        account, now = current().account, time.monotonic()
        first: F | None = None
        for option in filter(_is_ready, options):
            circuit = option.candidate.circuit
            if circuit.cause is not None or not circuit.outages.is_down(account, now):  # an open one has its own probes
                return option
            first = first or option
        if first is None:
            raise unavailable((option.candidate for option in options), now)
        return first

    def _next(self, failure: errors.GatewayError) -> F | None:
        if self._count > self._model.retries:
            return None
        if isinstance(failure, errors.ContextLengthExceeded):
            return self._larger_window()
        if not isinstance(failure, errors.UpstreamError) or not failure.retryable:
            return None
        untried = next(filter(_is_ready, self._untried), None)
        if (
            isinstance(failure, errors.UpstreamRateLimited | errors.UpstreamAuthError | errors.UpstreamOverloaded)
            and untried is not None
        ):
            following: F | None = untried
        else:
            following = self._other_target() or untried
        if following is None:
            return self._again(failure)
        return self.now if self._precedes(following, failure) else following

    def _precedes(self, following: F, failure: errors.UpstreamError) -> bool:
        """Whether the requested model is tried once more before a fallback, with an attempt left for that."""
        model = self._model.name
        if self._wait is not None or self._count >= self._model.retries:
            return False
        if following.candidate.model.name == model or self.now.candidate.model.name != model:
            return False
        if current().account in self.now.candidate.circuit.outages.until:
            return False  # it was a probe
        wait = self._short_wait(failure)
        if wait is None or wait >= self.left() or not self._budget.has_half(current().account):
            return False
        self._wait = wait
        return True

    def _short_wait(self, failure: errors.UpstreamError) -> float | None:
        """Seconds after which the same model may answer; None if it is not worth the wait."""
        asked = failure.asked_wait
        if asked is None and failure.retry_after != failure.default_wait:
            asked = failure.retry_after  # as a plugin says it
        if asked is not None and asked > self._model.patience:
            return None
        if isinstance(failure, errors.UpstreamRateLimited):
            return None if asked is None else asked + GRACE
        if not _is_short(failure):
            return None
        return max(asked or 0.0, random.uniform(*SOON))  # noqa: S311 - spreads load, guards nothing

    def _other_target(self) -> F | None:
        """The next target that was not tried yet, with any credential."""
        seen = {id(candidate.target) for candidate in self._tried}
        others = (option for option in self._untried if id(option.candidate.target) not in seen)
        return next(filter(_is_ready, others), None)

    def _larger_window(self) -> F | None:
        """A fallback with a larger context window than the model that refused the prompt as too long."""
        window = self.now.candidate.model.context_window or 0
        larger = (option for option in self._untried if (option.candidate.model.context_window or 0) > window)
        return next(filter(_is_ready, larger), None)

    def _again(self, failure: errors.GatewayError) -> F | None:
        """The same candidate again, if the failure was temporary and cost nothing."""
        if isinstance(
            failure,
            errors.UpstreamAuthError | errors.UpstreamTimeout | errors.UpstreamInvalidResponse | errors.ProviderFailed,
        ):
            return None
        if (failure.retry_after or 0.0) > LONGEST_PAUSE:
            return None
        return self.now

    def _pause(self, failure: errors.GatewayError) -> float:
        jitter = PAUSE * self._count * (0.5 + random.random())  # noqa: S311 - spreads load, guards nothing
        return max((failure.retry_after or 0.0) + GRACE, jitter)


def _is_short(failure: errors.UpstreamError) -> bool:
    """Whether a failure may be over at once: no connection, or a 5xx."""
    if isinstance(failure, errors.UpstreamTimeout):
        return failure.answered == GATEWAY_TIMEOUT  # the upstream's own answer, not its silence
    if isinstance(failure, errors.UpstreamOverloaded):
        return failure.code != "service_unavailable"  # which is the operator's credit
    return isinstance(failure, errors.UpstreamUnreachable) or (
        type(failure) is errors.UpstreamError and failure.origin != "request"
    )


def may_spend(budget: RetryBudget, candidates: Iterable[Candidate]) -> bool:
    """Whether the account of the current call may have one more attempt at these candidates; counts it then."""
    account, now = current().account, time.monotonic()
    is_shared = any(candidate.circuit.count.others_answered(account, now) for candidate in candidates)
    return budget.spend(account, now, is_shared=is_shared)


def _is_ready(option: Adapted[Any]) -> bool:
    circuit = option.candidate.circuit
    return circuit.closed() or circuit.ready(time.monotonic())

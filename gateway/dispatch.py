"""The walk over targets: attempt, fall back, and stop at the first chunk or the first answer.

Everything before that is invisible to the caller, so a failure still has a true HTTP status. Only errors whose class is
`retryable` move on to the next target; the caller's own mistakes do not. Failed attempts are not billed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from gateway.errors import GatewayError, InternalError, UpstreamError, UpstreamTruncated
from gateway.foreign import check_stream, is_theirs
from gateway.log import PluginLog
from gateway.metrics import Metrics
from gateway.routing import Candidate

T = TypeVar("T")
F = TypeVar("F", bound="Fitted")


class Fitted(Protocol):
    """Anything prepared for one candidate."""

    @property
    def candidate(self) -> Candidate: ...


MAX_ATTEMPTS = 3  # the first one and at most two more


class Opened(Generic[T]):
    """A stream that has produced its first item: where it comes from, that item, and the rest."""

    def __init__(self, candidate: Candidate, first: T, rest: AsyncIterator[T]) -> None:
        self.candidate = candidate
        self.first = first
        self.rest = rest

    async def close(self) -> None:
        """End the stream; generators can be closed, other iterators need not have a way."""
        aclose = getattr(self.rest, "aclose", None)
        if aclose is not None:
            await aclose()


class Dispatcher:
    """Tries candidates in order; counts attempts and upstream errors."""

    def __init__(self, metrics: Metrics, log: PluginLog) -> None:
        self.metrics = metrics
        self.log = log

    async def call(self, options: list[F], attempt: Callable[[F], Awaitable[T]], tried: list[Candidate]) -> T:
        """The first answer that `attempt` yields; appends each candidate to `tried` before trying it."""
        failure: UpstreamError | None = None
        for option in options[:MAX_ATTEMPTS]:
            candidate = option.candidate
            tried.append(candidate)
            try:
                return await attempt(option)
            except GatewayError as error:
                failure = self._judge(candidate, error)
            except BaseException as error:
                # A third-party provider may raise anything; it must not take the request walk down with it.
                failure = self._judge(candidate, self.contain(candidate, error))
        raise failure or InternalError(detail="no candidates")

    async def open(
        self,
        options: list[F],
        attempt: Callable[[F], AsyncIterator[T]],
        tried: list[Candidate],
    ) -> Opened[T]:
        """The first stream that yields an item."""

        async def first_item(option: F) -> Opened[T]:
            stream = attempt(option)
            check_stream(stream)
            try:
                first = await anext(stream)
            except StopAsyncIteration:
                raise UpstreamTruncated() from None
            return Opened(option.candidate, first, stream)

        return await self.call(options, first_item, tried)

    def _judge(self, candidate: Candidate, error: GatewayError) -> UpstreamError:
        """Count the failure; raise it if no other target could do better."""
        if isinstance(error, UpstreamError):
            self.metrics.upstream_error(candidate.model.name, candidate.target.provider, error.code or "upstream_error")
        if not isinstance(error, UpstreamError) or not error.retryable:
            raise error
        return error

    def contain(self, candidate: Candidate, error: BaseException) -> GatewayError:
        """A provider's own failure as an answer may tell it; the log names the provider."""
        if not is_theirs(error):
            raise error
        self.log.provider_failed(candidate.target.provider, error)
        return UpstreamError(detail=f"{type(error).__name__} in provider {candidate.target.provider}")

"""The walk over targets: attempt, fall back, retry, hedge, and stop at the first chunk or the first answer.

Everything before that is invisible to the caller, so a failure still has a true HTTP status. Only errors whose class is
`retryable` move on; the caller's own mistakes do not, except that a prompt too long for one model may fit a fallback
with a larger window. A call has at most three attempts, and extra ones come out of a budget. Failed attempts are not
billed. Sharp edge: with hedging two attempts run at once; the winner stands last in `tried`, and the loser is cancelled
but not waited for, since foreign code may not care.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from gateway.catalog import Model
from gateway.errors import GatewayError, InternalError, ProviderFailed, UpstreamError, UpstreamTruncated
from gateway.log import PluginLog
from gateway.metrics import Metrics
from gateway.plugins.isolation import check_stream, is_plugin_error
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.retry_policy import MAX_ATTEMPTS, RetryPolicy
from gateway.routing.router import Candidate

T = TypeVar("T")
F = TypeVar("F", bound="Adapted")

__all__ = ["MAX_ATTEMPTS", "Adapted", "Dispatcher", "Opened"]


class Adapted(Protocol):
    """Anything prepared for one candidate."""

    @property
    def candidate(self) -> Candidate: ...


class Opened(Generic[T]):
    """A stream that has produced its first item: where it comes from, that item, and the rest."""

    def __init__(self, candidate: Candidate, first: T, rest: AsyncIterator[T]) -> None:
        self.candidate = candidate
        self.first = first
        self.rest = rest
        self._source = rest
        self._left = False

    def go_on_with(self, other: Opened[T]) -> None:
        """From now on it is the other's candidate that serves, and that failures are held against."""
        self.candidate.circuit.leave()
        self.candidate, other._left = other.candidate, True

    async def close(self) -> None:
        """End the stream; generators can be closed, other iterators need not have a way."""
        if not self._left:
            self._left = True
            self.candidate.circuit.leave()
        try:
            aclose = getattr(self.rest, "aclose", None)
            if aclose is not None:
                await aclose()
        finally:
            if self._source is not self.rest:  # which, if it never began, has closed nothing
                aclose = getattr(self._source, "aclose", None)
                if aclose is not None:
                    await aclose()


class Dispatcher:
    """Tries candidates in order; counts attempts and upstream errors."""

    def __init__(self, metrics: Metrics, log: PluginLog) -> None:
        self.metrics = metrics
        self.log = log
        self._budgets: dict[str, RetryBudget] = {}
        self._losers: set[asyncio.Task[Any]] = set()  # of races, until they have ended

    def call(
        self,
        options: Sequence[F],
        attempt: Callable[[F], Awaitable[T]],
        tried: list[Candidate],
        *,
        kind: type = object,
    ) -> Awaitable[T]:
        """The first answer that `attempt` yields; appends each candidate to `tried` before trying it.

        A provider whose answer is no `kind` has failed, and another one can still be tried.
        """
        return self._walk(options, attempt, tried, kind=kind)

    def open(
        self, options: Sequence[F], attempt: Callable[[F], AsyncIterator[T]], tried: list[Candidate]
    ) -> Awaitable[Opened[T]]:
        """The first stream that yields an item; close it."""

        async def first_item(option: F) -> Opened[T]:
            stream = attempt(option)
            check_stream(stream)
            try:
                first = await anext(stream)
            except StopAsyncIteration:
                raise UpstreamTruncated() from None
            return Opened(option.candidate, first, stream)

        return self._walk(options, first_item, tried, kind=None)

    def may_go_on(self, model: Model, tried: Sequence[Candidate]) -> bool:
        """Whether a cut stream has an attempt left to be continued by; it is then counted."""
        if len(tried) > model.retries or not self._budget(model.name).spend():
            return False
        self.metrics.inc("gateway_extra_attempts", (model.name, "continuation"))
        return True

    # Attempts --------------------------------------------------------------------------------------------------------

    async def _walk(
        self, options: Sequence[F], run: Callable[[F], Awaitable[T]], tried: list[Candidate], *, kind: type | None
    ) -> T:
        if not options:
            raise InternalError(detail="no candidates")
        first = options[0].candidate
        model, started = first.model, time.monotonic()
        budget = self._budget(model.name)
        budget.earn()
        option: F | None = options[0]
        walk: RetryPolicy[F] | None = None
        if tried or model.hedge_after or not first.circuit.closed():
            walk = RetryPolicy(options, tried, budget, started=started)
            option = walk.now
        else:
            tried.append(first)
        told: GatewayError | None = None
        failure: GatewayError | None = None
        try:
            while option is not None:
                try:
                    if walk is None:  # nearly every call ends here and needs no succession: 0.5 µs
                        return await self._attempt(option, run, kind=kind)
                    if model.hedge_after and walk.may_hedge():
                        return await walk.in_time(self._hedged(option, run, walk, kind=kind))
                    return await walk.in_time(self._attempt(option, run, kind=kind))
                except GatewayError as error:
                    failure = error
                if told is None or failure.retryable or option.candidate.model is model:
                    told = failure  # what only a fallback finds wrong is no mistake of the caller's
                if walk is None:
                    walk = RetryPolicy(options, tried, budget, started=started, begun=True)
                option = await walk.after(failure, self.metrics)
            assert told is not None
            raise told
        finally:
            del told, failure  # as in `contain`, also where a later attempt had an answer or the client left

    async def _attempt(self, option: F, run: Callable[[F], Awaitable[T]], *, kind: type | None) -> T:
        """One attempt, told to its circuit, which it leaves with a whole answer; raises only the tree's errors.

        `kind` is what a whole answer must be; None for a stream.
        """
        candidate = option.candidate
        circuit = candidate.circuit
        started = time.monotonic()
        circuit.enter(started)
        try:
            answer = await run(option)
            if kind is not None and not isinstance(answer, kind):
                raise TypeError(f"a whole answer is a {kind.__name__}, not a {type(answer).__name__}")
        except GatewayError as error:
            circuit.leave()
            self.failed(candidate, error)
            raise
        except BaseException as error:
            # A third-party provider may raise anything; it must not take the request walk down with it.
            circuit.abandoned()
            raise self.contain(candidate, error) from error
        now = time.monotonic()
        circuit.succeeded(now, now - started)
        if kind is not None:
            circuit.leave()
        return answer

    async def _hedged(
        self, option: F, run: Callable[[F], Awaitable[T]], walk: RetryPolicy[F], *, kind: type | None
    ) -> T:
        """Race a second target against one that has been silent for too long; the first answer wins."""
        first = asyncio.create_task(self._attempt(option, run, kind=kind))
        runners: dict[asyncio.Task[T], Candidate] = {first: option.candidate}
        won = False
        try:
            await asyncio.wait(runners, timeout=option.candidate.model.hedge_after)
            rival = None if first.done() else walk.hedge(self.metrics)
            if rival is not None:
                runners[asyncio.create_task(self._attempt(rival, run, kind=kind))] = rival.candidate
            answer = await self._winner(runners, walk)
            won = True
            return answer
        finally:
            self._drop(runners, raced=won)
            # The failure that leaves here is its task's, and its traceback holds this frame and the one below.
            runners.clear()
            del first

    async def _winner(self, runners: dict[asyncio.Task[T], Candidate], walk: RetryPolicy[F]) -> T:
        """The first to succeed; the last failure when none does."""
        pending = set(runners)
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            won = next((task for task in done if not task.cancelled() and task.exception() is None), None)
            if won is not None:
                walk.won(runners.pop(won))
                return won.result()
            if not pending:
                return done.pop().result()  # raises

    def _drop(self, losers: Mapping[asyncio.Task[T], Candidate], *, raced: bool) -> None:
        """End them, without waiting for it; `raced`: there is a winner."""
        for task, candidate in losers.items():
            if raced and not (task.done() and _failed(task)):
                self.metrics.inc("gateway_hedges_lost", (candidate.model.name, candidate.target.provider))
            task.cancel()
            self._losers.add(task)
            task.add_done_callback(partial(self._dropped, candidate))

    def _dropped(self, candidate: Candidate, task: asyncio.Task[T]) -> None:
        """One that had an answer all the same lets go of it."""
        self._losers.discard(task)
        if not _failed(task) and isinstance(answer := task.result(), Opened):
            closing = asyncio.get_running_loop().create_task(self._let_go(answer))
            self._losers.add(closing)
            closing.add_done_callback(self._losers.discard)

    async def _let_go(self, opened: Opened[T]) -> None:
        try:
            await opened.close()
        except Exception as error:
            # Third-party clean-up, of an answer that nobody waits for.
            self.contain(opened.candidate, error)

    # Judging ---------------------------------------------------------------------------------------------------------

    def failed(self, candidate: Candidate, error: GatewayError) -> None:
        """Count a failure at a target: of an attempt, or of a stream that had begun."""
        candidate.circuit.failed(error, time.monotonic())
        if isinstance(error, UpstreamError):
            self.metrics.upstream_error(candidate.model.name, candidate.target.provider, error.code or "upstream_error")

    def contain(self, candidate: Candidate, error: BaseException) -> GatewayError:
        """A provider's own failure as an answer may tell it; the log names the provider."""
        if not is_plugin_error(error):
            try:
                raise error
            finally:
                # Its traceback holds this frame: a cycle, and with it the request of every client that leaves.
                del error
        self.log.provider_failed(candidate.target.provider, error)
        told = ProviderFailed(detail=f"{type(error).__name__} in provider {candidate.target.provider}")
        candidate.circuit.failed(told, time.monotonic(), of_plugin=True)
        self.metrics.upstream_error(candidate.model.name, candidate.target.provider, "upstream_error")
        return told

    def _budget(self, model: str) -> RetryBudget:
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = RetryBudget()  # one per model of the catalogue
        return budget


def _failed(task: asyncio.Task[Any]) -> bool:
    """Whether a task that is over has no answer."""
    return task.cancelled() or task.exception() is not None

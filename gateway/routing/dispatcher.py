"""Tries the candidates of a call: attempt, fall back, retry, hedge, and stop at the first chunk or the first answer.

The caller sees nothing of a failed attempt, so a failure still has its HTTP status. Only an error whose class is
`retryable` leads to another attempt. A caller's own mistake does not, with one exception: a prompt that is too long for
one model may fit a fallback with a larger window. A call has at most three attempts, and extra ones use a budget.
Failed attempts are not billed. No attempt starts after the caller has left. Sharp edge: a hedged call runs two attempts
at once. The one that answers is last in `tried`. The other is cancelled and not awaited, because third-party code may
ignore the cancellation. `stuck` watches it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from gateway.catalog import Model
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    InternalError,
    ProviderFailed,
    UpstreamError,
    UpstreamRejected,
    UpstreamTruncated,
)
from gateway.http_client.send_state import current, track_part
from gateway.log import PluginLog
from gateway.metrics import Metrics
from gateway.plugins.isolation import check_stream, is_cancelled, is_plugin_error
from gateway.plugins.upstream_errors import clean_error
from gateway.routing.attempt_answers import Race, note_failure
from gateway.routing.refused_signatures import without_signatures
from gateway.routing.request_adaptation import Adapted
from gateway.routing.retry_budget import RetryBudget
from gateway.routing.retry_policy import RetryPolicy, may_spend
from gateway.routing.router import Candidate
from gateway.routing.stuck_tasks import StuckTasks

T = TypeVar("T")
F = TypeVar("F", bound=Adapted[Any])


class Opened(Generic[T]):
    """A stream that has yielded its first item: its candidate, that item, and the iterator of the rest.

    One that no attempt has opened is not `in_flight` at its candidate.
    """

    def __init__(self, candidate: Candidate, first: T, rest: AsyncIterator[T], *, in_flight: bool = True) -> None:
        self.candidate = candidate
        self.first = first
        self.rest = rest
        self._source = rest
        self._left = not in_flight

    def continue_with(self, other: Opened[T]) -> None:
        """Use the other stream's candidate from now on; later failures count for its circuit."""
        self.candidate.circuit.leave()
        self.candidate, other._left = other.candidate, True

    async def close(self) -> None:
        """End the stream. Generators have `aclose`; other iterators may have none."""
        if not self._left:
            self._left = True
            self.candidate.circuit.leave()
        try:
            aclose = getattr(self.rest, "aclose", None)
            if aclose is not None:
                await aclose()
        finally:
            if self._source is not self.rest:  # a wrapper that never started has not closed its source
                aclose = getattr(self._source, "aclose", None)
                if aclose is not None:
                    await aclose()


class Dispatcher:
    """Tries candidates in order; counts attempts and upstream errors."""

    def __init__(self, metrics: Metrics, log: PluginLog) -> None:
        self.metrics = metrics
        self.log = log
        self.stuck = StuckTasks(metrics, log)
        self._budgets: dict[str, RetryBudget] = {}
        self._losers: set[asyncio.Task[Any]] = set()  # cancelled hedged attempts, until they have ended

    def call(
        self,
        options: Sequence[F],
        attempt: Callable[[F], Awaitable[T]],
        tried: list[Candidate],
        *,
        kind: type = object,
    ) -> Awaitable[T]:
        """The first answer that `attempt` returns; appends each candidate to `tried` before it is called.

        An answer that is not an instance of `kind` is a failure of the provider; another candidate may be tried.
        """
        return self._run(options, attempt, tried, kind=kind)

    def open(
        self, options: Sequence[F], attempt: Callable[[F], AsyncIterator[T]], tried: list[Candidate]
    ) -> Awaitable[Opened[T]]:
        """The first stream that yields an item; the caller closes it."""

        async def first_item(option: F) -> Opened[T]:
            stream = attempt(option)
            check_stream(stream)
            try:
                first = await anext(stream)
            except StopAsyncIteration:
                raise UpstreamTruncated() from None
            return Opened(option.candidate, first, stream)

        return self._run(options, first_item, tried, kind=None)

    def may_continue(self, model: Model, tried: Sequence[Candidate]) -> bool:
        """Whether a cut stream may use one more attempt to be continued; counts it then."""
        if (
            current().caller_left
            or is_cancelled()
            or len(tried) > model.retries
            or not may_spend(self._budget(model.name), tried)
        ):
            return False
        self.metrics.inc("gateway_extra_attempts", (model.name, "continuation"))
        return True

    # Attempts --------------------------------------------------------------------------------------------------------

    async def _run(
        self, options: Sequence[F], run: Callable[[F], Awaitable[T]], tried: list[Candidate], *, kind: type | None
    ) -> T:
        if not options:
            raise InternalError(detail="no candidates")
        first = options[0].candidate
        model, started = first.model, time.monotonic()
        budget = self._budget(model.name)
        budget.earn()
        option: F | None = options[0]
        policy: RetryPolicy[F] | None = None
        if tried or model.hedge_after or not first.circuit.closed() or first.circuit.outages.until:
            policy = RetryPolicy(options, tried, budget, started=started)
            option = policy.now
        else:
            tried.append(first)
        reply: GatewayError | None = None  # the error that the caller gets
        failure: GatewayError | None = None
        try:
            while option is not None:
                try:
                    if policy is None:  # most calls end here and need no retry policy: 0.5 µs
                        return await self._attempt(option, run, kind=kind)
                    if model.hedge_after and policy.may_hedge():
                        return await policy.in_time(self._hedged(option, run, policy, kind=kind))
                    return await policy.in_time(self._attempt(option, run, kind=kind))
                except asyncio.CancelledError:
                    failure = self._take_late()
                    if failure is None:
                        raise
                    self.failed(option.candidate, failure)
                except GatewayError as error:
                    failure = self._take_late() or error
                note_failure(current(), tried, option.candidate, failure)
                if reply is None or failure.retryable or option.candidate.model is model:
                    reply = failure  # a request that only a fallback refuses is not the caller's mistake
                if current().caller_left or is_cancelled():
                    break
                if policy is None:
                    policy = RetryPolicy(options, tried, budget, started=started, begun=True)
                option = await policy.after(failure, self.metrics)
            assert reply is not None
            raise reply
        finally:
            del reply, failure  # as in `contain`; also after a later answer, or when the client left

    def _take_late(self) -> GatewayError | None:
        """The timeout for which the clock has cancelled this attempt; the task may go on with another one."""
        state = current()
        late, state.late = state.late, None
        task = asyncio.current_task()
        if late is not None and task is not None:
            task.uncancel()
        return late

    async def _attempt(self, option: F, run: Callable[[F], Awaitable[T]], *, kind: type | None) -> T:
        """One attempt, with its result reported to the circuit; raises a GatewayError, or passes on a cancellation.

        `kind` is the class of a whole answer; None for a stream, which stays in flight until it is closed.
        """
        candidate = option.candidate
        circuit = candidate.circuit
        started = time.monotonic()
        circuit.enter(started)
        state = current()
        state.begin(started)
        traced = None if state.trace is None else state.trace.attempt(candidate.target.provider, candidate.target.model)
        try:
            try:
                answer = await run(option)
            except (UpstreamRejected, ContextLengthExceeded) as error:
                other = None if option.if_refused is None else option.if_refused(error)
                other = other or without_signatures(option, error)
                if other is None or state.caller_left:
                    raise
                state.begin_again(time.monotonic())
                answer = await run(cast("F", other))
                if other.if_accepted is not None:
                    other.if_accepted()
            if kind is not None and not isinstance(answer, kind):
                raise TypeError(f"a whole answer is a {kind.__name__}, not a {type(answer).__name__}")
        except GatewayError as error:
            circuit.leave()
            state.fail()
            if traced is not None:
                traced.end(error)
            self.failed(candidate, error, digest=_digest(option.request))
            raise
        except BaseException as error:
            # A third-party provider may raise anything; the dispatcher must go on.
            circuit.abandoned()
            if traced is not None:
                traced.end(error)
            if is_plugin_error(error):
                state.fail()
            raise self.contain(candidate, error, digest=_digest(option.request)) from error
        now = time.monotonic()
        circuit.succeeded(now, now - started, state.account)
        if kind is not None:
            circuit.leave()
        return answer

    async def _hedged(
        self, option: F, run: Callable[[F], Awaitable[T]], policy: RetryPolicy[F], *, kind: type | None
    ) -> T:
        """Start a second attempt when the first one is silent for too long; the first answer is used."""
        whole = current()
        whole.race(time.monotonic())
        first = asyncio.create_task(self._apart(option, run, kind=kind))
        runners: dict[asyncio.Task[T], Candidate] = {first: option.candidate}
        won, race = False, None
        try:
            await asyncio.wait(runners, timeout=option.candidate.model.hedge_after)
            second = None if first.done() or whole.caller_left else policy.hedge(self.metrics)
            if second is not None:
                runners[asyncio.create_task(self._apart(second, run, kind=kind))] = second.candidate
                race = Race(whole, option.candidate, second.candidate)
            answer = await self._winner(runners, policy, race)
            won = True
            return answer
        finally:
            if race is not None:
                race.end()
            whole.raced(won=won)
            self._drop(runners, raced=won)
            # The failure that leaves here is its task's, and its traceback holds this frame and the one below.
            runners.clear()
            del first

    async def _apart(self, option: F, run: Callable[[F], Awaitable[T]], *, kind: type | None) -> T:
        """One of two attempts at once, with a state of its own."""
        track_part()
        return await self._attempt(option, run, kind=kind)

    async def _winner(self, runners: dict[asyncio.Task[T], Candidate], policy: RetryPolicy[F], race: Race | None) -> T:
        """The answer of the first attempt that succeeds; raises the last failure when none does."""
        pending = set(runners)
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if race is not None:
                _note_ended(race, runners, done)
            won = next((task for task in done if not _failed(task)), None)
            if won is not None:
                candidate = runners.pop(won)
                policy.won(candidate)
                if race is not None:
                    race.won(candidate)
                return won.result()
            if not pending:
                return done.pop().result()  # raises

    def _drop(self, losers: Mapping[asyncio.Task[T], Candidate], *, raced: bool) -> None:
        """Cancel the attempts without waiting for them; `raced`: another attempt has answered."""
        for task, candidate in losers.items():
            if raced and not (task.done() and _failed(task)):
                self.metrics.inc("gateway_hedges_lost", (candidate.model.name, candidate.target.provider))
            task.cancel()
            self.stuck.watch(task, candidate.circuit)
            self._losers.add(task)
            task.add_done_callback(partial(self._dropped, candidate))

    def _dropped(self, candidate: Candidate, task: asyncio.Task[T]) -> None:
        """Close the stream of a cancelled attempt that had one."""
        self._losers.discard(task)
        if not _failed(task) and isinstance(answer := task.result(), Opened):
            closing = asyncio.get_running_loop().create_task(self._close_unused(answer))
            self._losers.add(closing)
            closing.add_done_callback(self._losers.discard)

    async def _close_unused(self, opened: Opened[T]) -> None:
        try:
            await opened.close()
        except Exception as error:
            # Third-party clean-up of an answer that is not used.
            self.contain(opened.candidate, error)

    # Failures --------------------------------------------------------------------------------------------------------

    def failed(self, candidate: Candidate, error: GatewayError, *, digest: int = 0) -> None:
        """Count a failure at a target and clean its texts: of an attempt with a request of `digest`, or of a stream."""
        clean_error(error, candidate.provider.secret_texts)
        candidate.circuit.failed(error, time.monotonic(), account=current().account, digest=digest)
        if isinstance(error, UpstreamError):
            self.metrics.upstream_error(candidate.model.name, candidate.target.provider, error.code or "upstream_error")

    def contain(self, candidate: Candidate, error: BaseException, *, digest: int = 0) -> GatewayError:
        """The public error for an exception of a provider's own code; the log names the provider. Raises all others."""
        if not is_plugin_error(error):
            try:
                raise error
            finally:
                # Its traceback holds this frame: a cycle, and with it the request of every client that leaves.
                del error
        self.log.provider_failed(candidate.target.provider, error)
        failure = ProviderFailed(detail=f"{type(error).__name__} in provider {candidate.target.provider}")
        account = current().account
        candidate.circuit.failed(failure, time.monotonic(), account=account, digest=digest, of_plugin=True)
        self.metrics.upstream_error(candidate.model.name, candidate.target.provider, "upstream_error")
        return failure

    def _budget(self, model: str) -> RetryBudget:
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = RetryBudget()  # one per model of the catalogue
        return budget


def _digest(request: object) -> int:
    """A number that equal requests share; forms have the same one if they have the same fields."""
    body: bytes = getattr(request, "body", b"")
    return hash(body) if body else hash(tuple(map(bytes, getattr(request, "fields", {}).values())))


def _note_ended(race: Race, runners: Mapping[asyncio.Task[T], Candidate], done: Iterable[asyncio.Task[T]]) -> None:
    for task in done:
        if _failed(task):
            race.failed(runners[task], None if task.cancelled() else task.exception())


def _failed(task: asyncio.Task[Any]) -> bool:
    """Whether a finished task has no answer."""
    return task.cancelled() or task.exception() is not None

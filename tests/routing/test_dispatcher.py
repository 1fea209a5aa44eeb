"""Attempts: who is tried after which failure, three times at most, within a budget; hedged races with one winner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from gateway import Chat, ChatChunk, Provider
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    NoHealthyUpstream,
    UpstreamAuthError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.log import PluginLog
from gateway.metrics import Metrics, Totals
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.request_adaptation import Adapted
from gateway.routing.retry_budget import BURST
from gateway.routing.router import Candidate, Router
from tests.delays import forever, provider_takes
from tests.polling import turns, until


class Silent(Provider, Chat):
    name = "silent"

    async def stream_chat(self, request: Any, target: Any) -> Any:
        yield ChatChunk.text("x")


Option = Adapted[Any]


Play = Callable[[str], Any]  # place → what the attempt there does: a value, an error, or something to await


class Stage:
    """A model, its targets, and a script by place."""

    def __init__(self, **model: Any) -> None:
        providers = {name: {"plugin": "fake"} for name in "abc"}
        settings = parse(
            {
                "providers": providers,
                "models": {
                    "m": {
                        "targets": [{"provider": "a"}, {"provider": "b"}],
                        "strategy": "in_order",
                        **model,
                        "free": True,
                    },
                    "large": {"provider": "c", "context_window": 100_000, "free": True},
                },
            },
            demo=True,
        )
        self.metrics = Metrics()
        self.health = CircuitRegistry(self.metrics)
        two = {0: Silent(None, None), 1: Silent(None, None)}  # type: ignore[arg-type]
        self.router = Router(Catalog.build(settings), {"a": two, "b": two, "c": {0: two[0]}}, health=self.health)
        self.dispatcher = Dispatcher(self.metrics, PluginLog())
        self.tried: list[Candidate] = []

    def options(self) -> list[Option]:
        return [Option(found, None, ()) for found in self.router.resolve(self.router.catalog.models["m"], Chat)]

    async def call(self, play: Play, options: list[Option] | None = None) -> Any:
        self.tried = []

        async def attempt(option: Option) -> Any:
            outcome = play(place(option.candidate))
            if asyncio.iscoroutine(outcome):
                outcome = await outcome
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        return await self.dispatcher.call(options or self.options(), attempt, self.tried)

    @property
    def places(self) -> list[str]:
        return [place(candidate) for candidate in self.tried]

    def exposition(self) -> str:
        totals = Totals()
        delta = self.metrics.drain()
        if delta is not None:
            totals.merge(delta, source="w")
        return totals.text()[0].decode()


def place(candidate: Candidate) -> str:
    return f"{candidate.circuit.key.provider}{candidate.circuit.key.credential}"


def script(**outcomes: Any) -> Play:
    """What happens where; a list is played in turn, and anything unnamed answers."""
    turns = {name: iter(outcome) for name, outcome in outcomes.items() if isinstance(outcome, list)}

    def play(at: str) -> Any:
        name = at if at in outcomes else at[0]
        if name in turns:
            return next(turns[name])
        return outcomes.get(name, f"answer of {at}")

    return play


async def test_an_unreachable_target_is_followed_by_another_not_by_its_other_credential() -> None:
    stage = Stage()
    assert await stage.call(script(a=UpstreamUnreachable())) in {"answer of b0", "answer of b1"}
    assert [at[0] for at in stage.places] == ["a", "b"]
    assert 'gateway_extra_attempts_total{kind="fallback",model="m"} 1.0' in stage.exposition()


@pytest.mark.parametrize(
    "error", [UpstreamAuthError(), UpstreamRateLimited(retry_after=60), UpstreamOverloaded()], ids=repr
)
async def test_a_refused_credential_is_followed_by_the_other_one(error: GatewayError) -> None:
    stage = Stage()
    first = place(stage.options()[0].candidate)
    other = "a1" if first == "a0" else "a0"  # the next call starts with the other credential
    answer = await stage.call(script(**{other: error}))
    assert answer == f"answer of {first}"
    assert stage.places == [other, first]


async def test_credentials_are_used_in_rotation() -> None:
    stage = Stage()
    firsts = [place(stage.options()[0].candidate) for _ in range(6)]
    assert firsts == ["a0", "a1"] * 3


async def test_at_most_three_attempts_are_made_and_the_last_failure_is_raised() -> None:
    stage = Stage()
    numbers = iter(range(9))
    with pytest.raises(UpstreamUnreachable) as caught:
        await stage.call(lambda at: UpstreamUnreachable(detail=str(next(numbers))))
    assert len(stage.places) == 3
    assert caught.value.detail == "2"


async def test_a_model_may_forbid_retries() -> None:
    stage = Stage(retries=0)
    with pytest.raises(UpstreamUnreachable):
        await stage.call(script(a=UpstreamUnreachable()))
    assert len(stage.places) == 1


async def test_single_target_is_tried_again_after_a_pause() -> None:
    stage = Stage()
    only = stage.options()[:1]
    started = time.monotonic()
    assert await stage.call(script(a=[UpstreamUnreachable(), "well"]), only) == "well"
    assert len(stage.places) == 2
    assert time.monotonic() - started >= 0.05
    assert 'kind="retry"' in stage.exposition()


async def test_single_target_is_tried_again_after_a_short_wait_only() -> None:
    stage = Stage()
    only = stage.options()[:1]
    assert await stage.call(script(a=[UpstreamRateLimited(retry_after=0.1), "well"]), only) == "well"
    with pytest.raises(UpstreamRateLimited):
        await stage.call(script(a=UpstreamRateLimited(retry_after=30)), only)
    assert len(stage.places) == 1


async def test_target_that_timed_out_is_not_tried_again() -> None:
    stage = Stage()
    with pytest.raises(UpstreamTimeout):
        await stage.call(script(a=UpstreamTimeout()), stage.options()[:1])
    assert len(stage.places) == 1


async def test_rejected_request_ends_the_attempts() -> None:
    stage = Stage()
    with pytest.raises(UpstreamRejected):
        await stage.call(script(a=UpstreamRejected()))
    assert len(stage.places) == 1


async def test_a_prompt_too_long_goes_only_to_a_fallback_with_a_larger_window() -> None:
    stage = Stage(context_window=1000, fallbacks=["large"])
    assert await stage.call(script(a=ContextLengthExceeded("too long"))) == "answer of c0"
    assert [at[0] for at in stage.places] == ["a", "c"]
    smaller = Stage(context_window=1_000_000, fallbacks=["large"])
    with pytest.raises(ContextLengthExceeded):
        await smaller.call(script(a=ContextLengthExceeded("too long")))
    assert [at[0] for at in smaller.places] == ["a"]


async def test_extra_attempts_are_bounded_by_a_budget_that_grows_with_calls() -> None:
    stage = Stage(targets=[{"provider": "a"}, {"provider": "b"}])
    only = stage.options()[:1]
    extra = 0
    for _ in range(60):
        with pytest.raises(UpstreamError):
            await stage.call(script(a=UpstreamAuthError(), b=UpstreamAuthError()), [*only, *stage_option(stage, "b")])
        extra += len(stage.places) - 1
        for circuit in stage.health.all():
            circuit.recovered()
    assert extra <= BURST + 60 * 0.2 + 1


def stage_option(stage: Stage, name: str) -> list[Option]:
    candidates = [spot.candidates[0] for spot in stage.router._capable("m", Chat)]
    return [Option(found, None, ()) for found in candidates if found.target.provider == name]


async def test_open_target_is_skipped_and_the_error_gives_the_time_of_the_first_probe() -> None:
    stage = Stage()
    for _ in range(5):
        for option in stage.options():
            if option.candidate.target.provider == "a":
                stage.dispatcher.failed(option.candidate, UpstreamUnreachable())
    assert {place(option.candidate)[0] for option in stage.options()} == {"b"}
    for _ in range(5):
        for spot in stage.router._capable("m", Chat):
            for candidate in spot.candidates:
                stage.dispatcher.failed(candidate, UpstreamUnreachable())
    with pytest.raises(NoHealthyUpstream) as caught:
        stage.options()
    assert caught.value.retry_after is not None
    assert 25 < caught.value.retry_after <= 30
    assert 'gateway_targets_open{cause="failures",credential="1",model="m",provider="a"} 1.0' in stage.exposition()


async def test_rate_limit_on_every_target_gives_a_429() -> None:
    stage = Stage()
    with pytest.raises(UpstreamRateLimited):
        await stage.call(lambda at: UpstreamRateLimited(retry_after=9))
    for spot in stage.router._capable("m", Chat):
        for candidate in spot.candidates:
            stage.dispatcher.failed(candidate, UpstreamRateLimited(retry_after=9))
    with pytest.raises(UpstreamRateLimited) as caught:
        stage.options()
    assert caught.value.status == 429
    assert 8 < (caught.value.retry_after or 0) <= 9


async def test_least_latency_and_least_busy_only_change_the_order() -> None:
    quick = Stage(strategy="least_latency")
    for spot, seconds in zip(quick.router._capable("m", Chat), (2.0, 0.1), strict=True):
        for candidate in spot.candidates:
            candidate.circuit.succeeded(time.monotonic(), seconds)
    assert [place(option.candidate)[0] for option in quick.options()] == ["b", "b", "a", "a"]
    busy = Stage(strategy="least_busy")
    busy.router._capable("m", Chat)[0].candidates[0].circuit.enter(time.monotonic())
    assert [place(option.candidate)[0] for option in busy.options()] == ["b", "b", "a", "a"]


# Hedging -------------------------------------------------------------------------------------------------------------


class Answers:
    """Streams whose first chunk comes at once, or after what is waited for at that target; remembers which closed."""

    def __init__(self, **waits: Callable[[], Awaitable[object]]) -> None:
        self.waits = waits
        self.closed: list[str] = []

    async def stream(self, option: Option) -> AsyncIterator[str]:
        at = place(option.candidate)[0]
        try:
            if at in self.waits:
                await self.waits[at]()
            yield f"first of {at}"
            yield "second"
        finally:
            self.closed.append(at)


async def test_silent_target_is_hedged_and_the_slower_attempt_is_cancelled() -> None:
    stage = Stage(hedge_after=0.05)
    answers = Answers(a=forever)
    async with asyncio.timeout(30):
        opened = await stage.dispatcher.open(stage.options(), answers.stream, stage.tried)
    assert opened.first == "first of b"
    await until(lambda: answers.closed == ["a"])
    assert [at[0] for at in stage.places] == ["a", "b"]
    await opened.close()
    assert all(found.circuit.in_flight == 0 for found in stage.tried)
    exposition = stage.exposition()
    assert 'gateway_extra_attempts_total{kind="hedge",model="m"} 1.0' in exposition
    assert 'gateway_hedges_lost_total{model="m",provider="a"} 1.0' in exposition


async def test_first_attempt_may_answer_first_in_a_hedge() -> None:
    stage = Stage(hedge_after=0.02)
    answers = Answers(a=lambda: until(lambda: len(stage.tried) == 2), b=forever)
    opened = await stage.dispatcher.open(stage.options(), answers.stream, stage.tried)
    assert opened.first == "first of a"
    assert [at[0] for at in stage.places] == ["b", "a"]
    await opened.close()


async def test_a_fast_answer_is_never_hedged() -> None:
    stage = Stage(hedge_after=5.0)
    answers = Answers()
    opened = await stage.dispatcher.open(stage.options(), answers.stream, stage.tried)
    assert [at[0] for at in stage.places] == ["a"]
    await opened.close()


async def test_hedge_with_two_failures_continues_with_the_other_targets() -> None:
    stage = Stage(hedge_after=0.02, fallbacks=["large"])

    async def late_failure(error: GatewayError) -> None:
        await until(lambda: len(stage.tried) == 2)
        raise error

    answer = await stage.call(lambda at: "answer of c" if at[0] == "c" else late_failure(UpstreamUnreachable()))
    assert answer == "answer of c"
    assert [at[0] for at in stage.places] == ["a", "b", "c"]


async def test_a_cancelled_hedge_leaves_nothing_running() -> None:
    stage = Stage(hedge_after=0.02)
    answers = Answers(a=forever, b=forever)
    race = asyncio.ensure_future(stage.dispatcher.open(stage.options(), answers.stream, stage.tried))
    await until(lambda: len(stage.tried) == 2)
    race.cancel()
    with pytest.raises(asyncio.CancelledError):
        await race
    await until(lambda: sorted(answers.closed) == ["a", "b"])
    assert all(found.circuit.in_flight == 0 for found in stage.tried)


class Stubborn(Answers):
    """Answers whose first target swallows its cancellation and goes on until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def stream(self, option: Option) -> AsyncIterator[str]:
        at = place(option.candidate)[0]
        if at == "a":
            try:
                await forever()
            except asyncio.CancelledError:
                await self.let_go.wait()
        yield f"first of {at}"
        self.closed.append(at)


@pytest.mark.slow
async def test_attempt_that_suppresses_its_cancellation_does_not_delay_the_answer() -> None:
    stage = Stage(hedge_after=0.02)
    answers = Stubborn()
    async with asyncio.timeout(30):
        opened = await stage.dispatcher.open(stage.options(), answers.stream, stage.tried)
    assert opened.first == "first of b"
    await opened.close()
    assert [found.circuit.in_flight for found in stage.tried] == [1, 0], "the loser still runs"
    answers.let_go.set()
    await until(lambda: all(found.circuit.in_flight == 0 for found in stage.tried))


@pytest.mark.parametrize("moment", range(12))
async def test_a_hedge_cancelled_at_any_step_leaves_nothing_in_flight(moment: int) -> None:
    stage = Stage(hedge_after=0.001)
    both_run = asyncio.Event()
    answers = Answers(a=both_run.wait)
    race = asyncio.ensure_future(stage.dispatcher.open(stage.options(), answers.stream, stage.tried))
    async with asyncio.timeout(30):
        while len(stage.tried) < 2 and not race.done():
            await asyncio.sleep(0)
    both_run.set()
    await turns(moment)
    race.cancel()
    [opened] = await asyncio.gather(race, return_exceptions=True)
    if not isinstance(opened, BaseException):
        await opened.close()  # it had won before
    begun = {place(found)[0] for found in stage.tried if found.circuit.in_flight or found.circuit.latency}
    assert await until(lambda: all(found.circuit.in_flight == 0 for found in stage.tried))
    assert await until(lambda: begun <= set(answers.closed))


async def test_one_call_probes_a_target_even_if_many_were_resolved_at_once() -> None:
    stage = Stage()
    a = [option for option in stage.options() if place(option.candidate)[0] == "a"]
    for option in a:
        for _ in range(5):
            stage.dispatcher.failed(option.candidate, UpstreamUnreachable())
        option.candidate.circuit.until = time.monotonic()  # due
    resolved = [stage.options() for _ in range(20)]
    places: list[str] = []

    async def attempt(option: Option) -> str:
        places.append(place(option.candidate))
        await until(lambda: len(places) == len(resolved))  # all of them run at once
        return "well"

    await asyncio.gather(*(stage.dispatcher.call(options, attempt, []) for options in resolved))
    assert sorted(at for at in places if at[0] == "a") == ["a0", "a1"], "one probe for each"


async def test_a_target_that_opened_meanwhile_is_not_a_fallback() -> None:
    stage = Stage(fallbacks=["large"])
    options = stage.options()
    for option in options:
        if place(option.candidate)[0] == "b":
            option.candidate.circuit.open("limited", time.monotonic(), 20)
    assert await stage.call(script(a=UpstreamUnreachable()), options) == "answer of c0"
    assert [at[0] for at in stage.places] == ["a", "a", "c"]


async def test_disconnect_during_a_probe_allows_another_probe() -> None:
    stage = Stage()
    [option] = stage.options()[:1]
    circuit = option.candidate.circuit
    circuit.open("failures", time.monotonic(), 0.0)
    probe = asyncio.create_task(stage.call(lambda at: forever(), [option]))
    await until(lambda: circuit.in_flight == 1)
    assert not circuit.ready(time.monotonic())
    probe.cancel()
    await asyncio.wait({probe})
    assert circuit.ready(time.monotonic())


async def test_all_attempts_share_one_total_timeout() -> None:
    stage = Stage(total_timeout=0.3)

    async def slowly(at: str) -> str:
        await provider_takes(0.2)
        if at[0] == "a":
            raise UpstreamUnreachable
        return "an answer that is too late"

    with pytest.raises(UpstreamError):
        await stage.call(slowly)
    assert all(found.circuit.in_flight == 0 for found in stage.tried)


@pytest.mark.parametrize("refusal", [ContextLengthExceeded("too long"), UpstreamRejected("unknown voice")], ids=repr)
async def test_rejection_by_a_fallback_is_not_reported_as_a_caller_error(refusal: GatewayError) -> None:
    stage = Stage(fallbacks=["large"], targets=[{"provider": "a"}])
    with pytest.raises(UpstreamTimeout):
        await stage.call(lambda at: refusal if at[0] == "c" else UpstreamTimeout())


@pytest.mark.parametrize("wait", ["5", float("nan"), float("inf"), -1.0, [1]], ids=repr)
async def test_invalid_retry_after_of_a_plugin_is_ignored(wait: Any) -> None:
    stage = Stage()
    error = UpstreamRateLimited(retry_after=wait)
    assert await stage.call(script(a=error)) == "answer of b0" or "b" in stage.places[-1]
    error.headers()


async def test_retry_after_of_callers_refused_during_a_probe_exceeds_a_millisecond() -> None:
    stage = Stage()
    for option in (options := stage.options()):
        option.candidate.circuit.open("failures", time.monotonic(), 0.0)
        option.candidate.circuit.enter(time.monotonic())
    with pytest.raises(NoHealthyUpstream) as refused:
        await stage.call(script(), options)
    assert refused.value.headers()["retry-after-ms"] == "1000"

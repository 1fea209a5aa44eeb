"""Whether the upstream of a call has its request, for every way in which attempts begin, fail and race."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from gateway.errors import UpstreamRateLimited, UpstreamRejected
from gateway.http_client.send_state import SendState, set_sent, track
from tests.delays import forever, provider_takes
from tests.polling import until
from tests.routing.test_dispatcher import Stage


async def leave(stage: Stage, play: Any, ready: Any) -> SendState:
    """The state of a call that is left once `ready` is true."""
    states: list[SendState] = []

    async def called() -> None:
        states.append(track(SendState()))
        await stage.call(play)

    task = asyncio.create_task(called())
    await until(ready)
    task.cancel()
    await asyncio.wait([task])
    return states[0]


async def test_request_of_a_provider_without_the_http_client_counts_as_sent() -> None:
    stage = Stage()
    assert (await leave(stage, lambda _: forever(), lambda: stage.tried)).sent


async def test_request_is_not_sent_while_it_connects() -> None:
    stage = Stage()

    async def connecting() -> None:
        set_sent(False)
        await forever()

    assert not (await leave(stage, lambda _: connecting(), lambda: stage.tried)).sent


async def test_request_that_was_refused_is_not_sent_while_the_next_attempt_is_awaited() -> None:
    stage = Stage()
    refused: list[str] = []

    def play(place: str) -> Any:
        refused.append(place)
        return UpstreamRateLimited(retry_after=4.0)

    assert not (await leave(stage, play, lambda: len(refused) >= 2)).sent


async def test_hedged_request_is_sent_if_either_upstream_has_it() -> None:
    stage = Stage(hedge_after=0.01)

    async def connecting() -> None:
        set_sent(False)
        await forever()

    play = {"a0": forever, "a1": forever}
    state = await leave(stage, lambda place: play.get(place, connecting)(), lambda: len(stage.tried) == 2)
    assert state.sent


async def test_hedged_request_is_not_sent_while_both_connect() -> None:
    stage = Stage(hedge_after=0.01)

    async def connecting() -> None:
        set_sent(False)
        await forever()

    assert not (await leave(stage, lambda _: connecting(), lambda: len(stage.tried) == 2)).sent


@pytest.mark.holds("prices.md#leaving-early-10")
@pytest.mark.parametrize("after", ["silence", "failure", "refusal"])
async def test_no_hedge_retry_or_adapted_request_starts_after_the_caller_has_left(after: str) -> None:
    stage = Stage(**({"hedge_after": 0.05} if after == "silence" else {}))
    states: list[SendState] = []
    begun: list[bool] = []

    async def answer() -> Any:
        begun.append(True)
        states[0].leave()
        if after == "failure":
            raise UpstreamRateLimited()
        if after == "refusal":
            raise UpstreamRejected()
        await provider_takes(0.15)
        return "answer"

    async def called() -> Any:
        states.append(track(SendState()))
        options = [structs.replace(option, if_refused=lambda _, same=option: same) for option in stage.options()]
        return await stage.call(lambda _: answer(), options)

    results = await asyncio.gather(called(), return_exceptions=True)
    assert (len(stage.tried), len(begun)) == (1, 1)
    assert states[0].sent == (results == ["answer"]) == (after == "silence")


async def test_no_attempt_starts_if_a_provider_turns_the_cancellation_into_a_failure() -> None:
    stage = Stage()
    states: list[SendState] = []

    async def stubborn() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise UpstreamRateLimited() from None

    async def called() -> None:
        states.append(track(SendState()))
        await stage.call(lambda _: stubborn())

    task = asyncio.create_task(called())
    await until(lambda: stage.tried)
    states[0].leave()
    task.cancel()
    await asyncio.wait([task])
    assert len(stage.tried) == 1
    assert not states[0].sent


async def test_each_attempt_of_a_hedge_stops_when_the_caller_has_left() -> None:
    stage = Stage(hedge_after=0.01)
    states: list[SendState] = []

    async def failing() -> None:
        await until(lambda: len(stage.tried) == 2)
        states[0].leave()
        raise UpstreamRateLimited()

    async def called() -> None:
        states.append(track(SendState()))
        await stage.call(lambda _: failing())

    await asyncio.gather(called(), return_exceptions=True)
    assert len(stage.tried) == 2
    assert not states[0].is_sent()


async def test_hedge_is_not_sent_while_one_attempt_connects_and_the_other_was_refused() -> None:
    stage = Stage(hedge_after=0.01)
    refused: list[bool] = []

    async def refusing() -> None:
        await until(lambda: len(stage.tried) == 2)
        refused.append(True)
        raise UpstreamRateLimited()

    async def connecting() -> None:
        set_sent(False)
        await forever()

    def play(place: str) -> Any:
        return refusing() if place.startswith("a") else connecting()

    assert not (await leave(stage, play, lambda: refused)).sent


async def test_calls_do_not_share_their_state() -> None:
    one, other = Stage(), Stage()
    states = await asyncio.gather(
        leave(one, lambda _: forever(), lambda: one.tried),
        leave(other, lambda _: UpstreamRateLimited(retry_after=4.0), lambda: len(other.tried) >= 2),
    )
    assert [state.sent for state in states] == [True, False]

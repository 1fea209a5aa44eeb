"""Several upstream calls for one request: their order, their first failure, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

import pytest

from gateway.errors import UpstreamError
from gateway_providers.gemini.parallel import in_parallel
from tests.delays import forever
from tests.leftovers import garbage
from tests.polling import until


class Unanswered:
    """Calls that end when they are cancelled, counted."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0

    async def call(self) -> None:
        self.begun += 1
        try:
            await forever()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


async def _fails() -> None:
    await asyncio.sleep(0)  # the other calls have begun
    raise UpstreamError(detail="first")


async def test_results_keep_the_order_of_the_calls_and_concurrency_is_bounded() -> None:
    running = most = 0
    others_ended = asyncio.Event()

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await (asyncio.sleep(0) if number else others_ended.wait())
        if number == 4:
            others_ended.set()
        running -= 1
        return number

    assert await in_parallel([partial(call, number) for number in range(5)], at_once=2) == [0, 1, 2, 3, 4]
    assert most == 2


@pytest.mark.slow
async def test_first_failure_ends_the_others_and_leaves_nothing_to_the_collector(no_collector: None) -> None:
    others = Unanswered()
    for _ in range(3):
        with pytest.raises(UpstreamError):
            await in_parallel([others.call, _fails, others.call], at_once=3)
    assert others.cancelled == others.begun == 6
    assert not garbage()


async def test_call_that_fails_during_its_cancellation_is_not_reported_in_addition_to_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise UpstreamError(detail="on the way out") from None

    with pytest.raises(UpstreamError):
        await in_parallel([stubborn, _fails], at_once=2)
    gc.collect()
    assert not caplog.records


async def test_cancelled_caller_ends_all_calls() -> None:
    calls = Unanswered()
    walk = asyncio.create_task(in_parallel([calls.call] * 3, at_once=2))
    await until(lambda: calls.begun == 2)
    walk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walk
    assert calls.cancelled == calls.begun == 2  # the third had not begun

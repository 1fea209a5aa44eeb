"""Several upstream calls for one request: their order, their first failure, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

import pytest

from gateway.errors import UpstreamError
from gateway_providers.gemini.parallel import in_parallel
from tests.leftovers import garbage


async def _after(seconds: float, number: int, ended: list[str]) -> int:
    try:
        await asyncio.sleep(seconds)
        if number < 0:
            raise UpstreamError(detail=str(number))
        return number
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


async def test_results_come_in_the_order_of_the_calls_and_no_more_run_than_may() -> None:
    running = most = 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (5 - number))
        running -= 1
        return number

    assert await in_parallel([partial(call, number) for number in range(5)], at_once=2) == [0, 1, 2, 3, 4]
    assert most == 2


async def test_first_failure_ends_the_others_and_leaves_nothing_to_the_collector(no_collector: None) -> None:
    ended: list[str] = []
    for _ in range(3):
        with pytest.raises(UpstreamError):
            await in_parallel(
                [partial(_after, 5.0, 1, ended), partial(_after, 0.001, -1, ended), partial(_after, 5.0, 2, ended)],
                at_once=3,
            )
    assert ended == ["cancelled"] * 6
    assert not garbage()


async def test_call_that_fails_as_it_is_cancelled_is_not_reported_beside_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn() -> int:
        try:
            return await _after(5.0, 1, [])
        except asyncio.CancelledError:
            raise UpstreamError(detail="on the way out") from None

    with pytest.raises(UpstreamError):
        await in_parallel([stubborn, partial(_after, 0.001, -1, [])], at_once=2)
    gc.collect()
    assert not caplog.records


async def test_caller_that_is_cancelled_ends_them_all() -> None:
    ended: list[str] = []
    walk = asyncio.create_task(in_parallel([partial(_after, 5.0, n, ended) for n in range(3)], at_once=2))
    await asyncio.sleep(0.01)
    walk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walk
    assert ended == ["cancelled"] * 2  # the third had not begun

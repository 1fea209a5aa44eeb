"""Many awaitables: a bounded number at a time, in order, and with all outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.ledger.gather_all import batches, gather_bounded, gather_rolling, outcomes_bounded


class Work:
    """Counts what is under way."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.running = self.most = 0

    async def run(self, number: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        if number < 0:
            raise ValueError(number)
        return number * number

    def make(self, numbers: list[int]) -> Iterator[asyncio.Future[int]]:
        """Each begins when it is made, as a command of a link does."""
        for number in numbers:
            self.begun.append(number)
            yield asyncio.ensure_future(self.run(number))


@pytest.mark.parametrize("gather", [gather_bounded, gather_rolling])
async def test_results_are_in_order_and_no_more_are_under_way_than_may_be(gather: Any) -> None:
    work = Work()
    assert await gather(work.make(list(range(25))), 10) == [number * number for number in range(25)]
    assert work.most == 10


async def test_failure_is_raised_when_its_batch_has_ended_and_no_other_batch_is_begun() -> None:
    work = Work()
    with pytest.raises(ValueError, match="-1"):
        await gather_bounded(work.make([1, -1, 2, -3, 4, 5]), 3)
    assert (work.begun, work.running) == ([1, -1, 2], 0)


async def test_next_one_is_begun_when_one_ends_and_not_when_all_have() -> None:
    first, begun = asyncio.Event(), list[int]()

    async def one(number: int) -> None:
        begun.append(number)
        if number == 0:
            await first.wait()
        elif number == 4:
            first.set()

    await gather_rolling(map(one, range(5)), 2)
    assert begun == [0, 1, 2, 3, 4]


async def test_rolling_failure_is_raised_when_all_have_ended_that_were_begun_and_no_other_is_begun() -> None:
    work = Work()
    with pytest.raises(ValueError, match="-1"):
        await gather_rolling(work.make([1, -1, 2, 3, 4, 5, 6, 7]), 3)
    assert work.begun == [1, -1, 2, 3]  # the last one before the failure was known
    assert work.running == 0


async def test_outcomes_have_results_and_exceptions_in_order() -> None:
    work = Work()
    first, second, third = await outcomes_bounded(work.make([1, -2, 3]), 2)
    assert (first, third, work.most) == (1, 9, 2)
    assert isinstance(second, ValueError)


def test_batches_take_what_they_need_and_no_more() -> None:
    numbers = iter(range(5))
    first, *rest = batches(numbers, 2)
    assert (first, rest) == ([0, 1], [[2, 3], [4]])
    assert list(batches([], 2)) == []
    numbers = iter(range(5))
    assert next(batches(numbers, 2)) == [0, 1]
    assert next(numbers) == 2


async def test_rolling_work_that_is_cancelled_leaves_nothing_that_was_not_awaited() -> None:
    """A warning would fail the test."""
    waiting = asyncio.Event()

    async def one(number: int) -> None:
        await waiting.wait()

    task = asyncio.create_task(gather_rolling(map(one, range(5)), 3))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

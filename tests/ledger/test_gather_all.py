"""Many awaitables: a bounded number at a time, in order, and with all outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.ledger.gather_all import batches, gather_bounded, outcomes_bounded


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


async def test_results_are_in_order_and_no_more_are_under_way_than_may_be() -> None:
    work = Work()
    assert await gather_bounded(work.make(list(range(25))), 10) == [number * number for number in range(25)]
    assert work.most == 10


async def test_failure_is_raised_when_its_batch_has_ended_and_no_other_batch_is_begun() -> None:
    work = Work()
    with pytest.raises(ValueError, match="-1"):
        await gather_bounded(work.make([1, -1, 2, -3, 4, 5]), 3)
    assert (work.begun, work.running) == ([1, -1, 2], 0)


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

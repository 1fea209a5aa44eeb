"""Answers of a moment ago: once for equal questions, and never those to another question or an error."""

from __future__ import annotations

import asyncio

import pytest

from gateway.web.recent_answers import RecentAnswers
from tests.polling import until


class Counter:
    """Counts how often it is asked, and fails as long as it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.may_answer = asyncio.Event()

    async def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        await self.may_answer.wait()
        if self.fails:
            raise ValueError(number)
        return number


async def test_equal_questions_at_one_moment_are_answered_once_and_others_by_themselves() -> None:
    recent, counter = RecentAnswers(60.0), Counter()
    asked = [asyncio.create_task(recent.get(question, counter)) for question in ("a", "a", "b", "a")]
    await until(lambda: counter.asked == 2)
    asked[0].cancel()  # the others still get their answer
    counter.may_answer.set()
    assert await asyncio.gather(*asked[1:]) == [1, 2, 1]
    assert await recent.get("a", counter) == 1


async def test_answer_is_forgotten_after_its_time_and_an_error_at_once() -> None:
    recent, counter = RecentAnswers(0.05), Counter()
    counter.may_answer.set()
    assert await recent.get("a", counter) == 1

    async def is_new() -> bool:
        return await recent.get("a", counter) == 2

    await until(is_new)
    counter.fails = True
    for _ in range(2):
        with pytest.raises(ValueError):
            await recent.get("b", counter)
    assert counter.asked == 4

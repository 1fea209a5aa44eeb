"""Answers of a moment ago: an equal question within a second gets the same answer, and costs nothing.

::

    figures = await recent.get(("usage", account, user), read)      # async def read() -> Figures

Who asks is not looked at here: a question has everything that its answer depends on, also what its reader may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

SECONDS = 1.0  # a call is to be seen within 3 s after its end, and the importer takes up to one of them

T = TypeVar("T")


class RecentAnswers:
    """The answers of one process; each is forgotten `seconds` after its question came, an error at once."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._answers: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, question: Hashable, answer: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer to the question; questions that come while it is computed wait for it, too."""
        task = self._answers.get(question)
        if task is None:
            task = self._answers[question] = asyncio.create_task(answer())
            task.add_done_callback(lambda done: self._forget_error(question, done))
            asyncio.get_running_loop().call_later(self._seconds, self._forget, question, task)
        result: T = await asyncio.shield(task)  # others may wait for it when this caller is cancelled
        return result

    def _forget_error(self, question: Hashable, done: asyncio.Task[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._forget(question, done)

    def _forget(self, question: Hashable, task: asyncio.Task[Any]) -> None:
        if self._answers.get(question) is task:
            del self._answers[question]

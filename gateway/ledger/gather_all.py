"""Awaits several awaitables until all have ended, and drops the references to their exceptions.

`asyncio.gather` alone either leaves the others running or returns the exceptions in a list. If one of that list is
raised, its traceback refers to the list, and only the garbage collector frees them. When a store is unreachable, every
entry of a journal would leave such an exception each second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """The results. If one or more failed, the first failure is raised once all have ended."""
    results: list[T] = []
    failure: BaseException | None = None
    for answer in await asyncio.gather(*awaitables, return_exceptions=True):
        if not isinstance(answer, BaseException):
            results.append(answer)
        elif failure is None:
            failure = answer
    if failure is None:
        return results
    try:
        raise failure
    finally:
        del failure, answer, awaitables

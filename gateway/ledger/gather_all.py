"""Awaits several things at once, all to their end, and lets go of those that failed.

`asyncio.gather` alone either leaves the others running or returns the failures in a list; raising one out of that list
makes its traceback hold the list, and all of them wait for the garbage collector. When a store is away that is a
journal's worth of them a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Their results; once all have ended, the first failure if there was one."""
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

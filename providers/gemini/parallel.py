"""Several upstream calls for one request, a bounded number at a time; the first failure ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def in_parallel(calls: Sequence[Callable[[], Awaitable[T]]], *, at_once: int) -> list[T]:
    """The results in the order of `calls`; raises the first error after every other call was cancelled."""
    if len(calls) == 1:
        return [await calls[0]()]
    gate = asyncio.Semaphore(at_once)

    async def run(call: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await call()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in calls]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]

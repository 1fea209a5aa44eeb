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

    tasks = [asyncio.create_task(run(call)) for call in calls]
    failure: BaseException | None = None
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failure = next((task.exception() for task in done if not task.cancelled() and task.exception()), None)
        del done
        if failure is not None:
            raise failure
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # looked at, or asyncio would report one that failed on its way out
        # No TaskGroup, and nothing left here: a failure's traceback holds this frame, and with it all the requests.
        tasks.clear()
        del failure, task

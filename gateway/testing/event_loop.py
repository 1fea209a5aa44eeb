"""Runs the check of a provider in an event loop of its own, and ends even if a task of the provider does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STOPS_WITHIN = 5.0  # seconds that a task may go on after it was cancelled


def run(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, which waits for ever for a task that goes on after it was cancelled; here it is abandoned."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(work)
    finally:
        try:
            if left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(left, timeout=STOPS_WITHIN))
            generators = loop.create_task(loop.shutdown_asyncgens())
            loop.run_until_complete(asyncio.wait((generators,), timeout=STOPS_WITHIN))
        finally:
            asyncio.set_event_loop(None)
            loop.close()


async def ends(task: asyncio.Task[Any], within: float) -> bool:
    """Whether the task ends within so many seconds."""
    done, _ = await asyncio.wait((task,), timeout=within)
    return bool(done)

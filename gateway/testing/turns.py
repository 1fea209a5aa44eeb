"""How long some work keeps every other task of the event loop waiting.

A task notes each of its turns while the work runs. The longest time between two of them is a stall of the work, or of
the machine: the process may have had no processor, or the garbage collector ran. So the work is done again until it
has no long stall. Work that blocks has one each time. On a busy machine, one of `ATTEMPTS` short pieces of work has
none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

BLOCKED = 0.04  # seconds that other tasks wait for their turn
ATTEMPTS = 20


async def shortest_stall(work: Callable[[], Awaitable[object]]) -> float:
    """The longest stall, in seconds, of the attempt whose longest one is the shortest; one without a stall suffices."""
    shortest = float("inf")
    for _ in range(ATTEMPTS):
        shortest = min(shortest, await _longest_stall(work()))
        if shortest < BLOCKED:
            break
    return shortest


async def _longest_stall(work: Awaitable[object]) -> float:
    longest, last = 0.0, time.perf_counter()

    async def take_turns() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    taking = asyncio.create_task(take_turns())
    try:
        await work
        await asyncio.sleep(0)  # the turn after the last step of the work
    finally:
        taking.cancel()
    return max(longest, time.perf_counter() - last)

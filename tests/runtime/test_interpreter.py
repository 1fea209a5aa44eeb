"""What the settings of the interpreter do."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from gateway.runtime.interpreter import switch_threads_often


@pytest.fixture
def computing() -> Iterator[None]:
    """A thread that computes without a pause; the interval between switches is restored afterwards."""
    before, ended = sys.getswitchinterval(), threading.Event()

    def compute() -> None:
        total = 0
        while not ended.is_set():
            total += sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    yield
    ended.set()
    thread.join()
    sys.setswitchinterval(before)


async def turns_within(seconds: float) -> int:
    """How often the event loop turns; each turn releases the interpreter's lock."""
    count, ends = 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        await asyncio.sleep(0)
        count += 1
    return count


@pytest.mark.usefixtures("computing")
async def test_event_loop_turns_much_more_often_beside_a_computing_thread() -> None:
    before = await turns_within(0.3)
    switch_threads_often()
    assert await turns_within(0.3) > 2 * before

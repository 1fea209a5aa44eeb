"""A provider's `start` and `close` may wait for ever; nobody waits longer than the limit."""

from __future__ import annotations

import asyncio

import pytest

from gateway.plugins.isolation import end_within
from tests.polling import until


async def test_work_that_ends_in_time_is_awaited_and_its_error_is_raised() -> None:
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("done")

    async def fails() -> None:
        raise ValueError("broken")

    await end_within(5.0, work())
    assert done == ["done"]
    with pytest.raises(ValueError, match="broken"):
        await end_within(5.0, fails())


async def test_work_that_ignores_its_cancellation_is_left_after_the_limit() -> None:
    released = asyncio.Event()
    ended: list[str] = []

    async def deaf() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        ended.append("ended")
        raise ValueError("too late for anybody")

    with pytest.raises(TimeoutError, match=r"it did not end within 0\.01 s"):
        await end_within(0.01, deaf())
    assert ended == []
    released.set()
    await until(lambda: ended == ["ended"])


async def test_work_is_cancelled_with_whoever_waits_for_it() -> None:
    cancelled: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("cancelled")
            raise

    waiting = asyncio.create_task(end_within(5.0, work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not cancelled
    waiting.cancel()
    await until(lambda: cancelled)
    assert waiting.cancelled()

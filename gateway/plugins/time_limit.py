"""Time limits for a provider's `start` and `close`, which may wait for ever or ignore that they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

START_WITHIN: Final = 60.0  # seconds; a local engine may load its model
CLOSE_WITHIN: Final = 5.0  # seconds

_left: set[asyncio.Task[None]] = set()  # cancelled, but not ended; without a reference they would be collected


async def end_within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Await `work`; TimeoutError after `seconds`, when it is cancelled and left to itself."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        _left.add(task)
        task.add_done_callback(_ended)
        raise TimeoutError(f"it did not end within {seconds:g} s")
    task.result()


def _ended(task: asyncio.Task[None]) -> None:
    """Let go of a task; its late error is no news, because the time limit was reported."""
    _left.discard(task)
    if not task.cancelled():
        task.exception()

"""Limits the effect of third-party code: which exceptions are a plugin's failure, and how long it may run.

Plugins may raise anything, including `SystemExit`, may never await, and may suppress a cancellation. Around a call of a
plugin, write `except BaseException as error: if not is_plugin_error(error): raise`. In a loop over its items, every
`TURN` items, write `await yield_to_loop()`. `end_within` bounds `start` and `close` of a provider, which may wait for
ever or ignore that they are cancelled. Sharp edge: nothing here helps against code that blocks the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, Final

TURN = 64  # items of a plugin's stream between two yields to the event loop
START_WITHIN: Final = 60.0  # seconds; a local engine may load its model
CLOSE_WITHIN: Final = 5.0  # seconds

_left: set[asyncio.Task[None]] = set()  # cancelled, but not ended; without a reference they would be collected


def is_plugin_error(error: BaseException) -> bool:
    """Whether `error` is the plugin's own failure: not Ctrl-C, and not a cancellation of the calling task."""
    if isinstance(error, asyncio.CancelledError):
        return not is_cancelled()
    return not isinstance(error, KeyboardInterrupt)


async def yield_to_loop() -> None:
    """Yield to the event loop; ends a task whose cancellation a plugin suppressed."""
    await asyncio.sleep(0)
    if is_cancelled():
        raise asyncio.CancelledError


def check_stream(found: object) -> None:
    """Raise TypeError for an object that is no stream; often a coroutine whose author forgot to yield."""
    if hasattr(found, "__anext__"):
        return
    if inspect.iscoroutine(found):
        found.close()
    raise TypeError(f"a stream is an async generator, not a {type(found).__name__}")


def is_cancelled() -> bool:
    """Whether the running task was cancelled, even if the exception was suppressed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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

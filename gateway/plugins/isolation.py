"""Limits the effect of third-party code: which exceptions are a plugin's failure, and when to yield to the event loop.

Plugins may raise anything, including `SystemExit`, may never await, and may suppress a cancellation. Around a call of a
plugin, write `except BaseException as error: if not is_plugin_error(error): raise`. In a loop over its items, every
`TURN` items, write `await yield_to_loop()`. Sharp edge: nothing here helps against code that does not return.
"""

from __future__ import annotations

import asyncio
import inspect

TURN = 64  # items of a plugin's stream between two yields to the event loop


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

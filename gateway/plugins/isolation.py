"""Other people's code inside ours: which of what it raises is its own failure, and how it is kept from taking over.

Plugins may raise anything, `SystemExit` included, may never wait for anything, and may refuse to be cancelled. Around a
call to them: `except BaseException as error: if not is_plugin_error(error): raise`. In a loop over what they yield,
every `TURN` items: `await yield_to_loop()`. Sharp edge: nothing here helps against code that simply does not return.
"""

from __future__ import annotations

import asyncio
import inspect

TURN = 64  # items of a foreign stream after which everybody else has a turn


def is_plugin_error(error: BaseException) -> bool:
    """Whether foreign code failed by itself: not by Ctrl-C, and not because the task that called it was cancelled."""
    if isinstance(error, asyncio.CancelledError):
        return not is_cancelled()
    return not isinstance(error, KeyboardInterrupt)


async def yield_to_loop() -> None:
    """Let everybody else have a turn; ends a task whose cancellation foreign code swallowed."""
    await asyncio.sleep(0)
    if is_cancelled():
        raise asyncio.CancelledError


def check_stream(found: object) -> None:
    """TypeError for what is no stream; most often a coroutine, of an author who forgot to yield."""
    if hasattr(found, "__anext__"):
        return
    if inspect.iscoroutine(found):
        found.close()
    raise TypeError(f"a stream is an async generator, not a {type(found).__name__}")


def is_cancelled() -> bool:
    """Whether the running task was told to end, whatever became of the exception that told it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

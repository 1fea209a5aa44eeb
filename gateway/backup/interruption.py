"""A signal that ends a restore: the work stops at its next step and cleans up, and the operator is told.

Without this the process would end at once, and leave what it has written.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from gateway.backup import BackupError

P = ParamSpec("P")
T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The signals that came within `watched`; the task that is watched is cancelled at the first one."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        self._ignored = False
        self._task: asyncio.Task[Any] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Signals in the block become a BackupError of it."""
        loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        set_: list[signal.Signals] = []
        with suppress(RuntimeError, ValueError):  # not in the main thread: the signals are somebody else's
            for one in SIGNALS:
                loop.add_signal_handler(one, self._on_signal, one)
                set_.append(one)
        try:
            yield
        except asyncio.CancelledError:
            if (error := self.taken()) is None:
                raise
            raise error from None
        finally:
            for one in set_:
                loop.remove_signal_handler(one)

    def taken(self) -> BackupError | None:
        """The error of a task that was cancelled, and goes on from here; None if it was no signal that cancelled it."""
        if self._signal is None or self._task is None:
            return None
        self._task.uncancel()
        return BackupError(f"stopped by {self._signal.name}")

    def check(self) -> None:
        """BackupError if there was a signal; for work in threads."""
        if self._signal is not None:
            raise BackupError(f"stopped by {self._signal.name}")

    def ignore(self) -> None:
        """From here on signals do nothing: what has begun is completed."""
        self._ignored = True

    def _on_signal(self, number: signal.Signals) -> None:
        if self._signal is None and not self._ignored:
            self._signal = number
            assert self._task is not None
            self._task.cancel()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread` that ends only when the thread has ended, also if it is cancelled."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        running.exception()
        raise

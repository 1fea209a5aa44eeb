"""Processes of the simulation: tasks that belong together, and that a kill stops where they are.

A task belongs to the process in whose context it was started. A killed process runs nothing more, not even `finally`
blocks of its tasks; what it has written to files and sockets stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tests.simulation.places import Place

T = TypeVar("T")


class Process:
    """One process; `on_kill` closes what the kernel would close."""

    def __init__(self, name: str, place: Place | None = None) -> None:
        self.name, self.place = name, place
        self.alive = True
        self.hangs_until = 0.0  # loop time
        self.on_kill: list[Callable[[], object]] = []
        self.tasks: list[asyncio.Task[Any]] = []  # also after its end, so that no coroutine is closed by the collector
        self._context = copy_context()
        self._context.run(CURRENT.set, self)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def finish(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of a coroutine that runs in this process; None if the process dies before."""
        task, died = self.start(work), asyncio.get_running_loop().create_future()

        def dies() -> None:
            if not died.done():
                died.set_result(None)

        self.on_kill.append(dies)
        if not self.alive:
            return None
        await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
        self.on_kill.remove(dies)
        return task.result() if task.done() else None

    def run(self, work: Callable[[], T]) -> T:
        """Call a function in this process."""
        return self._context.copy().run(work)

    def kill(self) -> None:
        """End the process at once."""
        if self.alive:
            self.alive = False
            for close in self.on_kill:
                close()

    def forget(self) -> None:
        """Let go of the tasks of a dead process: what their `finally` blocks start is dropped."""
        assert not self.alive
        for task in self.tasks:
            work = task.get_coro()
            if not task.done() and isinstance(work, Coroutine):
                with contextlib.suppress(BaseException):  # of a block that expects a living process
                    self.run(work.close)
        self.tasks.clear()


CURRENT: ContextVar[Process] = ContextVar("process")


def process_of(context: Context | None) -> Process | None:
    """The process to which a callback with this context belongs."""
    return CURRENT.get(None) if context is None else context.get(CURRENT)

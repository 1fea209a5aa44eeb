"""An event loop whose time is simulated: it never waits, and the next timer is due at once.

Callbacks that are ready run in their order, as asyncio promises. The order of events comes from their times, which the
network and the faults draw from the seed.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from unittest import mock

from tests.simulation.network import Network
from tests.simulation.processes import process_of

BEGAN = 1_790_000_000.0  # Unix seconds; any time will do


class Stuck(Exception):
    """Nothing is due any more, and the world waits for something."""


class Clock:
    """The time of the whole world, and of each call of `time`."""

    def __init__(self) -> None:
        self.passed = 0.0  # seconds

    def micros(self) -> int:
        """Unix microseconds."""
        return int((BEGAN + self.passed) * 1e6)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Let every module read this clock."""
        names: Mapping[str, Callable[[], Any]] = {
            "time": lambda: BEGAN + self.passed,
            "time_ns": lambda: int((BEGAN + self.passed) * 1e9),
            "monotonic": lambda: 1000.0 + self.passed,
            "monotonic_ns": lambda: int((1000.0 + self.passed) * 1e9),
            "perf_counter": lambda: 1000.0 + self.passed,
        }
        with mock.patch.multiple(time, **names):  # type: ignore[call-overload]
            yield


class _Waiting(selectors.BaseSelector):
    """Lets time pass instead of waiting for files."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._files[fileobj] = key = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._files.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self._clock.passed += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._files


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs the world; connections are those of `network`."""

    def __init__(self, clock: Clock, network: Network) -> None:
        super().__init__(_Waiting(clock))
        self._clock = clock
        self._network = network
        self.set_task_factory(_task)

    def time(self) -> float:
        return 1000.0 + self._clock.passed

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = process_of(context)
        if process is not None and not process.alive:
            return asyncio.Handle(callback, args, self, context)  # never run
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = process_of(context)
        if process is not None and not process.alive:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def drop_dead(self) -> None:
        """Cancel what killed processes were about to run."""
        for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
            process = process_of(handle._context)
            if process is not None and not process.alive:
                handle.cancel()

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        return await self._network.connect(protocol_factory, str(path))

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:  # type: ignore[override]
        """At once: nothing blocks here."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def _task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
    process = process_of(options.get("context"))
    if process is not None:
        process.tasks.append(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task

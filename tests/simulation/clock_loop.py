"""An event loop whose time is simulated: it never waits, and the next timer is due at once.

Callbacks that are ready run in their order, as asyncio promises; timers of one time run in the order in which they were
set. The order of events comes from their times, which the network and the faults draw from the seed. What belongs to a
killed process does not run, and what belongs to a hanging one runs when it goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any
from unittest import mock

from tests.simulation.network import Network
from tests.simulation.places import place
from tests.simulation.processes import CURRENT, process_of

#: Unix seconds: any time, and moments before the end of a month, of a summer time, of a year and of a leap day.
BEGINNINGS = (1_790_000_000.0, 1_790_812_790.0, 1_792_889_990.0, 1_798_761_590.0, 1_835_481_590.0)


class Stuck(Exception):
    """Nothing is due any more, and the world waits for something."""


class Clock:
    """The time of the whole world, and of each call of `time`."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.passed = 0.0  # seconds

    def now(self) -> float:
        """Unix seconds, by the clock of the machine of the running process."""
        found = place()
        return self.began + self.passed + (found.ahead if found is not None else 0.0)

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Let every module read this clock."""
        names: Mapping[str, Callable[[], Any]] = {
            "time": self.now,
            "time_ns": lambda: int(self.now() * 1e9),
            "monotonic": lambda: 1000.0 + self.passed,
            "monotonic_ns": lambda: int((1000.0 + self.passed) * 1e9),
            "perf_counter": lambda: 1000.0 + self.passed,
        }
        with mock.patch.multiple(time, **names):  # type: ignore[call-overload]
            yield


class _Handle:
    """A callback, as `asyncio.TimerHandle` without what serves debugging: a schedule makes 10,000 of them."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: Context | None, when: float = 0.0) -> None:
        self._callback, self._args, self._when = callback, args, when
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class SimulatedLoop(asyncio.base_events.BaseEventLoop):
    """Runs the world; connections are those of `network`."""

    def __init__(self, clock: Clock, network: Network) -> None:
        super().__init__()
        self._clock = clock
        self._network = network
        self._timers: list[tuple[float, int, _Handle]] = []  # a heap
        self._set = 0  # timers so far
        self.set_task_factory(_task)

    def time(self) -> float:
        return 1000.0 + self._clock.passed

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(1000.0 + self._clock.passed + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context, when)
        self._later(handle, when)
        return handle

    def _later(self, handle: _Handle, when: float) -> None:
        self._set += 1
        heappush(self._timers, (when, self._set, handle))

    def _run_once(self) -> None:
        """Run what is ready; if nothing is, let time pass until the next timer is due."""
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not ready:
            if not timers:
                raise Stuck
            self._clock.passed = max(self._clock.passed, timers[0][0] - 1000.0)
        now = 1000.0 + self._clock.passed
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT)
            if process is not None and process.hangs_until > now and process.alive:
                self._later(handle, process.hangs_until)
            elif process is None or process.alive:
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt, Stuck):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": "an error in a callback", "exception": error})

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

"""Detects a blocked event loop and names the provider whose code blocks it.

A thread looks whether the overload check is due since `STALLED` seconds. Then it reads the stack of the loop's thread.
The innermost frame of a provider's package names the code. The innermost method of a provider object names the
provider, because several providers may share a package. When the loop runs again, the stall is logged, counted, and
reported as a failure of the provider's code, so a provider that keeps blocking is quarantined. Sharp edge: if the whole
process was stopped or got no CPU time, no provider is blamed. C code that waits without releasing the interpreter looks
the same, so it is not blamed either. In a process without work, a stall is found after two more `IDLE_EVERY` seconds.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Protocol

from msgspec import Struct

from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.runtime.overload import CHECK_EVERY, IDLE_EVERY, OverloadMonitor

STALLED = 0.25  # seconds without a check, of a process that has work
LOOK_EVERY = 0.05
BYTES_PER_SECOND = 10_000_000  # of a body that a provider's code may take to translate, on a busy machine


class Stall(Struct, frozen=True):
    """One blocked period of the loop; `package` is empty if no provider's code was on the stack."""

    seconds: float
    package: str
    location: str  # file name, line and function
    provider: str = ""  # its name, if it could be found
    body: int = 0  # bytes of the largest request that the provider was serving

    @property
    def is_explained(self) -> bool:
        """Whether the size of a request explains the stall."""
        return self.seconds <= self.body / BYTES_PER_SECOND


class Watchdog:
    """Watches one loop from its own thread.

    `largest_body`: the bytes of the largest request that these providers serve; called in the watchdog's thread.
    """

    def __init__(
        self,
        overload: OverloadMonitor,
        stalled: Callable[[Stall], None],
        *,
        largest_body: Callable[[Sequence[str]], int] = lambda names: 0,
    ) -> None:
        self._largest_body = largest_body
        self.packages: Mapping[str, list[str]] = {}  # package → names of its providers; replaced whole
        self.instances: Mapping[int, str] = {}  # id of a provider → its name; replaced whole
        self._overload = overload
        self._stalled = stalled
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch the running loop, from its own thread."""
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        self._overload.woken.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        overload = self._overload
        looked, used = time.monotonic(), time.process_time()
        while not self._stop.is_set():
            wait = self._wait()
            last_check, check = overload.last_check, overload.due - CHECK_EVERY
            before, used_before = looked, used
            looked, used = time.monotonic(), time.process_time()
            if looked - check > STALLED:
                late = looked - before - wait
                paused = late > STALLED - LOOK_EVERY and used - used_before < late / 2
                package, location, provider = ("", "a pause of the whole process", "") if paused else self._culprit()
                body = self._largest_body(self.names(package, provider))  # now: the call may end with the stall
                self._wait_for_check(last_check)
                self._report(Stall(overload.last_check - check, package, location, provider, body))
                looked, used = time.monotonic(), time.process_time()

    def _wait(self) -> float:
        """Wait for the next look; returns how long it was to be, in seconds."""
        if not self._overload.asleep:
            self._stop.wait(LOOK_EVERY)
            return LOOK_EVERY
        self._overload.woken.wait(IDLE_EVERY)
        return IDLE_EVERY

    def names(self, package: str, provider: str) -> Sequence[str]:
        """The providers to blame: `provider`, or all of the package if it is not known which."""
        return [provider] if provider else self.packages.get(package, [])

    def _wait_for_check(self, check: float) -> None:
        while self._overload.last_check == check and not self._stop.wait(LOOK_EVERY):
            pass

    def _report(self, stall: Stall) -> None:
        assert self._loop is not None
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(self._stalled, stall)

    def _culprit(self) -> tuple[str, str, str]:
        """Package, location and provider of the innermost provider frame; else the location of the loop's thread."""
        innermost = frame = sys._current_frames().get(self._watched)
        while frame is not None:
            package = self._package_of(str(frame.f_globals.get("__name__", "")))
            if package:
                return package, _location(frame), self._provider_of(frame)
            frame = frame.f_back
        return "", _location(innermost) if innermost is not None else "", ""

    def _provider_of(self, frame: FrameType | None) -> str:
        """The name of the provider whose method is on the stack; empty for code that several share."""
        while frame is not None:
            if id(frame.f_locals.get("self")) in self.instances:
                return self.instances[id(frame.f_locals["self"])]
            frame = frame.f_back
        return ""

    def _package_of(self, module: str) -> str:
        while module:
            if module in self.packages:
                return module
            module = module.rpartition(".")[0]
        return ""


def _location(frame: FrameType) -> str:
    """The location of a frame, without folders."""
    name = frame.f_code.co_filename.rpartition("/")[2]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"


class StallNotes(Protocol):
    """The parts of a worker that a stall concerns."""

    watchdog: Watchdog
    health: CircuitRegistry
    metrics: Metrics


def note_stall(worker: StallNotes, stall: Stall) -> None:
    """The loop was blocked: log it, and count it against the plugin unless a large request explains it."""
    names = worker.watchdog.names(stall.package, stall.provider)
    if not stall.is_explained:
        for name in names:
            worker.health.provider(name).stalled(time.monotonic())
    culprit = f"by provider {', '.join(names)} " if names else ""
    size = f" with a request of {stall.body} bytes" if names and stall.is_explained else ""
    gateway_log.error("the event loop stood still for %.2f s %sat %s%s", stall.seconds, culprit, stall.location, size)
    worker.metrics.observe("gateway_loop_stall_seconds", (names[0] if names else "",), stall.seconds)

"""Sees that the event loop stands still, and names the provider whose code holds it.

A thread looks at the loop's beats; when none came for `STALLED` seconds it looks where the loop's thread is. The
innermost frame of a provider's package names the code, and the innermost method of a provider whose it is, for many may
share a package. When the loop runs again the stall is logged, counted, and held against the provider like any other
fault of its code, so that one which keeps blocking is quarantined. Sharp edge: where the whole process stood still,
stopped or out of its share of the processors, whoever happened to run is not to blame; C code that waits without giving
up the interpreter looks the same, and gets away.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from msgspec import Struct

from gateway.runtime.overload import OverloadMonitor

STALLED = 0.25  # seconds without a beat
LOOK_EVERY = 0.05


class Stall(Struct, frozen=True):
    """One time that the loop stood still; `package` is empty when no provider's code was seen."""

    seconds: float
    package: str
    place: str  # file name, line and function
    provider: str = ""  # its name, where it could be told


class Watchdog:
    """Watches one loop from a thread of its own."""

    def __init__(self, overload: OverloadMonitor, stalled: Callable[[Stall], None]) -> None:
        self.packages: Mapping[str, list[str]] = {}  # package → names of its providers; replaced whole
        self.instances: Mapping[int, str] = {}  # id of a provider → its name; replaced whole
        self._pressure = overload
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
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        looked, used = time.monotonic(), time.process_time()
        while not self._stop.wait(LOOK_EVERY):
            beat, before, used_before = self._pressure.last_beat, looked, used
            looked, used = time.monotonic(), time.process_time()
            if looked - beat > STALLED:
                late = looked - before
                paused = late > STALLED and used - used_before < late / 2
                package, place, provider = ("", "a pause of the whole process", "") if paused else self._culprit()
                self._wait_for_beat(beat)
                self._report(Stall(self._pressure.last_beat - beat, package, place, provider))
                looked, used = time.monotonic(), time.process_time()

    def _wait_for_beat(self, beat: float) -> None:
        while self._pressure.last_beat == beat and not self._stop.wait(LOOK_EVERY):
            pass

    def _report(self, stall: Stall) -> None:
        assert self._loop is not None
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(self._stalled, stall)

    def _culprit(self) -> tuple[str, str, str]:
        """The provider's package whose code runs, where, and the provider's name; else where the loop's thread is."""
        innermost = frame = sys._current_frames().get(self._watched)
        while frame is not None:
            package = self._package_of(str(frame.f_globals.get("__name__", "")))
            if package:
                return package, _place(frame), self._provider_of(frame)
            frame = frame.f_back
        return "", _place(innermost) if innermost is not None else "", ""

    def _provider_of(self, frame: FrameType | None) -> str:
        """The provider in one of whose methods this is; empty in code that several share."""
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


def _place(frame: FrameType) -> str:
    """Where a frame is, without the folders of this machine."""
    name = frame.f_code.co_filename.rpartition("/")[2]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"

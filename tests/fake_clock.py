"""Processes under another clock: the month of a gateway and its store ends when a test likes.

::

    clock = FakeClock(folder, datetime(2031, 3, 10, 12, tzinfo=UTC))
    environment |= clock.environment        # of what is started with it
    clock.now()                             # what these processes take for the time

The clock runs as the real one does, by an offset. It does what libfaketime does for the calendar, and leaves monotonic
time alone: with libfaketime 0.9, Python's `time.sleep` fails or its locks wait for ever, as monotonic time is set.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest


class FakeClock:
    """A clock that shows `start` now; `folder` is for its library."""

    def __init__(self, folder: Path, start: datetime) -> None:
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("another clock is set with a C compiler and LD_PRELOAD")
        self._library = folder / "fake_clock.so"
        source = Path(__file__).with_suffix(".c")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self.set(start)

    def set(self, start: datetime) -> None:
        """Show another time, in the processes that are started from now on."""
        self.offset = round(start.timestamp() - time.time())

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process with this clock."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET": str(self.offset)}

    def now(self) -> datetime:
        """What the processes take for the time."""
        return datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=self.offset)

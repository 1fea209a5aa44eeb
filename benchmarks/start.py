"""What every measuring command does first: it builds its programs, raises limits, and minds being ended."""

from __future__ import annotations

import resource
import signal
import sys
from contextlib import suppress
from types import FrameType

from benchmarks.compiler import build
from benchmarks.fault import BenchFault
from benchmarks.load import SOURCE as LOAD_SOURCE
from benchmarks.upstream import SOURCE as UPSTREAM_SOURCE


def prepare() -> None:
    """Build the programs, and let this process and its children open as many files as they may."""
    if not sys.platform.startswith("linux"):
        raise BenchFault("the bench needs Linux: it pins cores, and reads CPU and memory from /proc")
    signal.signal(signal.SIGTERM, _leave)  # as Ctrl-C: blocks unwind, and every started process is ended
    build(UPSTREAM_SOURCE)
    build(LOAD_SOURCE)
    with suppress(ValueError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)

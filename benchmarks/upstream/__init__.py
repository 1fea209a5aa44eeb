"""The mock upstream: `with mock_upstream(...) as upstream: upstream.port`. What it answers is told in mock.c."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.compiler import build
from benchmarks.fault import BenchFault
from benchmarks.processes import running

SOURCE = Path(__file__).with_name("mock.c")
START_WITHIN = 60.0


class Upstream(msgspec.Struct, frozen=True):
    """Where the mock listens on loopback, and its process."""

    port: int
    pid: int


@contextmanager
def mock_upstream(folder: Path, *, cores: Iterable[int]) -> Iterator[Upstream]:
    """The mock on a free port, for the length of a block."""
    log = folder / "upstream.log"
    with running([str(build(SOURCE))], log=log, cores=cores) as process:
        deadline = time.monotonic() + START_WITHIN
        while not (words := log.read_text().split()):
            if not process.alive or time.monotonic() > deadline:
                raise BenchFault("the mock upstream did not start")
            time.sleep(0.01)
        if words[0] != "listening":
            raise BenchFault(f"the mock upstream did not start: {process.last_words()}")
        yield Upstream(port=int(words[1]), pid=process.pid)

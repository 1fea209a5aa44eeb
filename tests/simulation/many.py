"""Many schedules at once, each process with its own seeds."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from tests.simulation.faults import FAULTS
from tests.simulation.running import run, shrunk
from tests.simulation.world import Plan

STEP = 1_000_000  # between the first seeds of two processes
LATEST = 120.0  # seconds that a process may need longer, to make a schedule smaller


def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory, where there is one."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="simulation-", dir=memory if memory.is_dir() else None)


def work(first: int, seconds: float, found: Any) -> None:
    """Run schedules one after the other, and put what came of them into a queue."""
    warnings.simplefilter("ignore")  # of coroutines that a killed process would have run
    sys.unraisablehook = lambda _: None  # of what is collected without a loop
    until, done, pairs = time.monotonic() + seconds, 0, Counter[tuple[str, str]]()
    stories: list[str] = []
    with folder() as place:
        while time.monotonic() < until and not stories:
            report = run(first + done, Path(place))
            done += 1
            pairs.update(combinations_with_replacement(sorted(set(report.faults)), 2))
            if report.broken:
                stories.append(shrunk(report, Path(place)).story())
    found.put((done, pairs, stories))


def many(first: int, seconds: float, *, shows_pairs: bool = False) -> int:
    """Schedules in as many processes as there are cores; 1 if a promise was broken."""
    context = multiprocessing.get_context("spawn")
    found, cores = context.Queue(), os.cpu_count() or 1
    workers = [context.Process(target=work, args=(first + core * STEP, seconds, found)) for core in range(cores)]
    for worker in workers:
        worker.start()
    results = [found.get(timeout=seconds + LATEST) for _ in workers]
    for worker in workers:
        worker.join()
    schedules = sum(done for done, _, _ in results)
    pairs = sum((counted for _, counted, _ in results), Counter[tuple[str, str]]())
    possible = len(FAULTS) * (len(FAULTS) + 1) // 2
    print(
        f"{schedules} schedules of {Plan().calls} calls from seed {first} in {seconds:.0f} s on {cores} cores: "
        f"{schedules / seconds * 3600:.0f} an hour; {len(pairs)} of {possible} pairs of faults"
    )
    if shows_pairs:
        print("\n".join(_table(pairs)))
    stories = [story for _, _, printed in results for story in printed]
    for story in stories:
        print(f"\n{story}")
    return bool(stories)


def _table(pairs: Counter[tuple[str, str]]) -> list[str]:
    """How many schedules had each two faults; on the diagonal, how many had the fault."""
    names = sorted(fault.__name__ for fault in FAULTS)
    head = " " * 32 + "".join(f"{number:4}" for number in range(len(names)))
    rows = (
        f"{number:2} {name:29}" + "".join(f"{pairs[min(name, other), max(name, other)]:4}" for other in names)
        for number, name in enumerate(names)
    )
    return [head, *rows]

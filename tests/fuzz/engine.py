"""Runs random cases of a target, and makes a case that fails smaller.

FUZZ_PAUSE may name a file: no cases run while it exists. `guided.py` runs cases that are guided by coverage.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import time
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from tests.fuzz.choices import Choices

BATCH = 500  # cases
LONGEST = 400  # bytes of choices
SMALLER = 20.0  # seconds in which a case is made smaller
MIB = 2**20
GROWTH = 256 * MIB  # that the process may grow by while one target runs


class Target(Protocol):
    """Code under test."""

    name: str
    #: Seconds of the processor that one case may take.
    seconds: float

    def make(self, choices: Choices) -> Any:
        """A case."""

    def check(self, case: Any) -> None:
        """Raise AssertionError, or any other error, if the code does not do what it should."""

    def close(self) -> None:
        """Free what the target uses."""


class Report(Struct):
    """The result of a run."""

    name: str
    cases: int = 0
    seconds: float = 0.0
    slowest: float = 0.0  # seconds of the processor

    def text(self) -> str:
        """One line."""
        rate = self.cases / self.seconds if self.seconds else 0.0
        took = f"{self.seconds:.0f} s, {rate:.0f} a second"
        return f"{self.name}: {self.cases} cases in {took}, the slowest {self.slowest * 1000:.0f} ms"


def run_case(target: Target, report: Report, data: bytes) -> None:
    """Check the case that these bytes make."""
    case = target.make(Choices(data))
    started = time.thread_time()
    target.check(case)
    took = time.thread_time() - started
    report.cases += 1
    report.slowest = max(report.slowest, took)
    assert took <= target.seconds, f"one case took {took:.2f} s of the processor"


def search(target: Target, seconds: float, *, seed: int | None = None) -> Report:
    """Check random cases for so many seconds; raises the error of the smallest case that fails."""
    report = Report(target.name)
    generator = random.Random(seed)
    before = peak_memory()
    gc.freeze()  # what is imported is not looked at by the collections: for quick cases they took most of the time
    while report.seconds < seconds:
        wait_while_paused()
        began = time.monotonic()
        for _ in range(BATCH):
            data = generator.randbytes(generator.randrange(LONGEST))
            try:
                run_case(target, report, data)
            except Exception as error:
                raise_smallest(target, data, error)
            if time.monotonic() - began > seconds:
                break
        report.seconds += time.monotonic() - began
        gc.collect()
        grown = peak_memory() - before
        assert grown < GROWTH, f"{target.name}: {grown // MIB} MiB more after {report.cases} cases"
    return report


def raise_smallest(target: Target, data: bytes, error: Exception) -> None:
    """Raise the error of the smallest case found that fails in the same way."""
    ends = time.monotonic() + SMALLER
    size = max(1, len(data) // 2)
    while time.monotonic() < ends:
        smaller = next((found for found in _smaller(data, size) if _fails(target, found, type(error))), None)
        if smaller is not None:
            data = smaller
        elif size > 1:
            size //= 2
        else:
            break
    case = target.make(Choices(data))
    try:
        target.check(case)
    except Exception as smallest:
        smallest.add_note(f"{target.name}: {case!r}\nmade of {data.hex()}")
        raise
    raise error


def _smaller(data: bytes, size: int) -> list[bytes]:
    """Cases without some bytes, or with zeros in place of them."""
    starts = range(0, len(data), size)
    shorter = [data[:at] + data[at + size :] for at in starts]
    zeros = [data[:at] + bytes(len(data[at : at + size])) + data[at + size :] for at in starts]
    return shorter + [other for other in zeros if other != data]


def _fails(target: Target, data: bytes, kind: type[Exception]) -> bool:
    try:
        target.check(target.make(Choices(data)))
    except kind:
        return True
    except Exception:
        return False
    return False


def peak_memory() -> int:
    """The most memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def wait_while_paused() -> None:
    """Wait while the file that FUZZ_PAUSE names exists."""
    name = os.environ.get("FUZZ_PAUSE")
    while name and Path(name).exists():
        time.sleep(5)

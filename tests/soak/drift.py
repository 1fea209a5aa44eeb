"""Does a figure drift? Samples of it over time, and the slope of a straight line through them by least squares.

The interval is 95 % under the usual assumption that samples err independently. Memory does not quite: what the
allocator keeps at one moment it keeps at the next, so the true interval is wider.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

T95 = 1.96  # of the normal distribution: the soak has hundreds of samples
KIB = 1024


class Sample(Struct, frozen=True):
    """One worker at one moment."""

    seconds: float  # since the load began
    rss: int  # bytes
    descriptors: int


class Slope(Struct, frozen=True):
    """How much a figure changes per second, and how far that may be off."""

    value: float
    margin: float

    @property
    def mib_per_hour(self) -> str:
        """For people."""
        scale = 3600 / 2**20
        return f"{self.value * scale:+.2f} ± {self.margin * scale:.2f} MiB/h"


def look(pid: int, seconds: float) -> Sample:
    """A worker's memory and descriptors now."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) * KIB for line in status.splitlines() if line.startswith("VmRSS:"))
    return Sample(seconds, rss, len(list(Path(f"/proc/{pid}/fd").iterdir())))


def slope(times: Sequence[float], values: Sequence[float]) -> Slope:
    """The line of least squares through at least three points."""
    count = len(times)
    middle, mean = sum(times) / count, sum(values) / count
    spread = sum((time - middle) ** 2 for time in times)
    value = sum((time - middle) * (y - mean) for time, y in zip(times, values, strict=True)) / spread
    missed = sum((y - mean - value * (time - middle)) ** 2 for time, y in zip(times, values, strict=True))
    return Slope(value, T95 * math.sqrt(missed / (count - 2) / spread))

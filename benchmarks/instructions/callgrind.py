"""Reads what callgrind wrote: the whole count, and the count of each stage by the functions that enter it."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from benchmarks.fault import BenchFault

# One number per line (a relative one counts as one), names and positions in full: nothing has to be put together again.
OPTIONS = (
    "--tool=callgrind",
    "--instr-atstart=no",
    "--trace-children=yes",
    "--compress-strings=no",
    "--compress-pos=no",
    "--dump-line=no",
    "--dump-instr=no",
)
ENTERED = re.compile(r"cfn=stage_from_(\d+)_to_(\d+)")


class Count(Struct, frozen=True):
    """Instructions; `stages` by number, 0 for what no stage has."""

    total: int
    stages: dict[int, int]


def read_count(file: Path) -> Count:
    """One output file."""
    total = None
    inside: dict[int, int] = defaultdict(int)
    entered, calls = None, False
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if calls:  # the line after calls= is what the callee cost with all that it called
                if entered:
                    cost = int(line.split()[1])
                    inside[int(entered[2])] += cost
                    inside[int(entered[1])] -= cost
                calls = False
            elif line.startswith("calls="):
                calls = True
            elif line.startswith("cfn="):
                entered = ENTERED.match(line)
            elif line.startswith("totals:"):
                total = int(line.split()[1])
    if total is None:
        raise BenchFault(f"callgrind's {file.name} has no totals")
    inside[0] += total
    return Count(total, dict(inside))

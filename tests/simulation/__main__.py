"""Simulated schedules: `python -m tests.simulation --minutes 2`, or one again: `--seed 62`.

Each process runs its own seeds. A schedule that breaks a promise is made smaller and printed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

from tests.simulation.finding import table
from tests.simulation.many import folder, many
from tests.simulation.running import run
from tests.simulation.world import Plan


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SIMULATE_MINUTES", "2")))
    parser.add_argument("--seed", type=int, help="run this schedule alone")
    parser.add_argument("--calls", type=int, default=Plan().calls)
    parser.add_argument("--without", default="", help="places of faults to leave out, from 0, with commas")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed")
    parser.add_argument("--planted", action="store_true", help="find each planted fault, from seed 0")
    parser.add_argument("--pairs", action="store_true", help="print how often each two faults met")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of texts have another order in each process otherwise
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    if given.planted:
        return table()
    if given.seed is not None:
        warnings.simplefilter("ignore")
        without = frozenset(int(one) for one in given.without.split(",") if one)
        with folder() as place:
            report = run(given.seed, Path(place), Plan(given.calls, without))
        print("\n".join(report.log))
        print(report.story() if report.broken else "every promise holds")
        return bool(report.broken)
    return many(given.first, given.minutes * 60, shows_pairs=given.pairs)


if __name__ == "__main__":
    sys.exit(main())

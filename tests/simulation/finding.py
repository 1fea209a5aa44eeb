"""How many schedules each planted fault needs: `python -m tests.simulation --planted`."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path

import pytest

from tests.simulation.many import folder
from tests.simulation.planted import PLANTED
from tests.simulation.running import run

MOST = 2000  # schedules


def find(name: str) -> tuple[str, int, float]:
    """The first seed that finds a planted fault, -1 for none, and the seconds until then."""
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    began = time.monotonic()
    with folder() as place, pytest.MonkeyPatch.context() as patch:
        PLANTED[name](patch)
        seed = next((seed for seed in range(MOST) if run(seed, Path(place)).broken), -1)
    return name, seed, time.monotonic() - began


def table() -> int:
    """Print the first seed of each planted fault, from seed 0; returns 1 if one is not found."""
    missing = 0
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for name, seed, seconds in pool.imap(find, PLANTED, chunksize=1):
            print(f"{seed:6} {seconds:6.1f} s  {name}", flush=True)
            missing += seed < 0
    return bool(missing)

"""An hour of fuzzing (FUZZ_MINUTES): each target runs random cases half of its time, then cases guided by coverage.

Without Atheris, all cases are random. FUZZ_TARGETS names targets, separated by commas.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.engine import search
from tests.fuzz.targets import TARGETS, new_target

MINUTES = float(os.environ.get("FUZZ_MINUTES", "60"))
NAMES = os.environ.get("FUZZ_TARGETS", ",".join(TARGETS)).split(",")
GUIDED = importlib.util.find_spec("atheris") is not None


@pytest.mark.parametrize("name", NAMES)
def test_random_cases_find_no_fault(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    seconds = MINUTES * 60 / len(NAMES) / (2 if GUIDED else 1)
    target = new_target(name)
    try:
        report = search(target, seconds)
    finally:
        target.close()
    assert report.cases
    with capfd.disabled():
        print(f"\n{report.text()}")


@pytest.mark.skipif(not GUIDED, reason="Atheris is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_cases_guided_by_coverage_find_no_fault(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seconds = MINUTES * 60 / len(NAMES) / 2
    command = [sys.executable, "-m", "tests.fuzz.guided", name, str(seconds), str(tmp_path / "kept")]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert run.returncode == 0, run.stdout[-6000:]
    with capfd.disabled():
        kept = len(list((tmp_path / "kept").iterdir()))
        print(f"\nguided, {kept} kept: {run.stdout.splitlines()[-1]}")

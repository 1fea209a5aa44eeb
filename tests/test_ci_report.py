"""`.ci/report.py` says what `.ci/run` prints of what passed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPORT = Path(__file__).parents[1] / ".ci" / "report.py"
INSTALLED = """
  lint: OK (4.04=setup[4.03]+cmd[0.01] seconds)
  py312: SKIP (0.02 seconds)
  congratulations :) (1428.10 seconds)
"""
RAN = """
  lint: OK (9.74=setup[9.21]+cmd[0.24,0.29] seconds)
  quick: FAIL code 1 (1428.27=setup[34.50]+cmd[1393.77] seconds)
  evaluation failed :( (1500.00 seconds)
"""
FIRST = {"passed": 7, "failed": 1, "skipped": 2, "unsteady": ["unsteady: a – b"], "slowest": [[9.5, "x"], [1.0, "y"]]}
SECOND = {"passed": 3, "failed": 0, "skipped": 0, "unsteady": [], "slowest": [[12.25, "z"]]}


def report(kind: str, *files: Path) -> str:
    """What it prints."""
    command = [sys.executable, str(REPORT), kind, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    """The output of the installation and of the run."""
    installed, ran = tmp_path / "installed", tmp_path / "ran"
    installed.write_text(INSTALLED, encoding="utf-8")
    ran.write_text(RAN, encoding="utf-8")
    return installed, ran


def test_each_environment_has_a_line_with_its_minutes(written: tuple[Path, Path]) -> None:
    lines = report("environments", *written).splitlines()
    assert [line.split() for line in lines] == [
        ["lint", "OK", "0:13", "minutes"],
        ["py312", "SKIP", "0:00", "minutes"],
        ["quick", "FAIL", "23:48", "minutes"],
    ]


def test_slowest_and_unsteady_tests_come_before_the_totals(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("".join(json.dumps(line) + "\n" for line in (FIRST, SECOND)), encoding="utf-8")
    assert report("tests", file).splitlines() == [
        "The 3 slowest tests, in seconds:",
        "  12.2 z",
        "   9.5 x",
        "   1.0 y",
        "Tests that failed once, and passed twice alone: 1",
        "unsteady: a – b",
        "10 passed, 1 failed, 2 skipped",
    ]


def test_run_without_tests_has_totals_of_nothing(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.touch()
    assert report("tests", file).splitlines()[-1] == "0 passed, 0 failed, 0 skipped"

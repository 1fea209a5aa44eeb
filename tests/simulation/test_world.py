"""The simulated world: schedules keep their promises, are the same each time, and find what is broken on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.running import run, shrunk
from tests.simulation.world import Plan

ROOT = Path(__file__).parents[2]
#: Schedules until a planted fault is found; from seed 0 on the slowest of them needs 1,020, in 85 s of one core.
MOST = 250
#: The first seed for those that need many, so that the test is short. Any other one works, too. All of them are printed
#: by `python -m tests.simulation --planted`.
FIRST = {
    "a reclaimed call has no marker": 9,
    "a lost hold is not charged": 21,
    "a reclaimed call is not corrected": 35,
    "a reclaim charges the whole hold": 9,
    "a hold that is asked for again counts again": 10,
    "a top-up counts each time": 15,
    "nobody takes over what the dead leave": 29,
    "confirmed settlements are not sent to another server": 21,
    "running calls are not noted": 29,
    "lines that the store has lost stay in the history": 577,
    "sums keep lines that the store has lost": 1019,
    "the database is not compared": 29,
    "lines leave the store before they are imported": 33,
    "lines that leave the store lose their sums": 33,
}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize("seed", range(12))
def test_schedule_keeps_every_promise(seed: int, tmp_path: Path) -> None:
    report = run(seed, tmp_path)
    assert not report.broken, report.story()
    assert len(report.log) > len(report.faults)


def test_schedule_of_a_seed_is_the_same_each_time(tmp_path: Path) -> None:
    first, again = run(5, tmp_path), run(5, tmp_path)
    assert first.log == again.log
    assert first.digest == again.digest != run(6, tmp_path).digest


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-13")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_found_and_named_in_a_short_schedule(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    PLANTED[name](monkeypatch)
    first = FIRST.get(name, 0)
    seeds = range(first, first + MOST)
    found = next((report for seed in seeds if (report := run(seed, tmp_path)).broken), None)
    assert found is not None
    story = shrunk(found, tmp_path).story()
    print(f"\n{name}, seed {found.seed}:\n{story}")
    assert len(story.splitlines()) <= 20
    assert f"python -m tests.simulation --seed {found.seed}" in story


@pytest.mark.slow
def test_command_runs_one_schedule_again_in_another_process() -> None:
    def output() -> str:
        command = [sys.executable, "-m", "tests.simulation", "--seed", "3", "--calls", str(Plan().calls)]
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": ""}
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    first = output()
    assert first.endswith("every promise holds\n")
    assert output() == first

"""The interval of a median, and what becomes of the samples of pairs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from benchmarks.contenders import Contender
from benchmarks.pairs import Interval, PairReport, lines_of, median_interval, pairs
from benchmarks.rounds import Plan, Sample
from benchmarks.scenarios import JSON, Scenario


def sample(cpu: float, *, faults: str = "") -> Sample:
    return Sample(
        scenario="json", point="64 connections", contender="any", round=1, figures={"cpu_us": cpu}, faults=faults
    )


def test_interval_of_fifteen_pairs_is_the_fourth_value_from_either_end() -> None:
    found = median_interval([float(n) for n in range(15, 0, -1)])
    assert found == Interval(4.0, 12.0, cast("Any", pytest.approx(0.9648, abs=1e-4)))


def test_five_pairs_are_the_fewest_that_have_an_interval() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0]) is None
    assert median_interval([5.0, 1.0, 2.0, 3.0, 4.0]) == Interval(1.0, 5.0, 0.9375)


def test_interval_holds_the_true_median_in_at_least_nine_of_ten_benches() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        found = median_interval([draw.expovariate(1.0) for _ in range(15)])
        assert found is not None
        held += found.low <= 0.6931 <= found.high
    assert held >= 1800


def test_ratios_are_taken_within_each_pair_and_a_pair_with_errors_is_excluded() -> None:
    taken = [
        (sample(90.0), sample(100.0)),
        (sample(180.0), sample(200.0)),  # a slow hour, for both
        (sample(5.0), sample(100.0, faults="3 status 503")),
        (sample(81.0), sample(100.0)),
    ]
    (line,) = lines_of(JSON, taken)
    assert line.ratios == pytest.approx([0.9, 0.9, 0.81])
    assert line.ratio == pytest.approx(0.9)
    assert line.medians == (90.0, 100.0)
    assert line.interval is None


def test_every_second_pair_begins_with_the_other_contender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run_scenario(scenario: Scenario, contenders: list[Contender], plan: Plan) -> list[Sample]:
        ran.append([contender.name for contender in contenders])
        cpu = {"gateway": 90.0, "stock": 100.0}
        return [msgspec.structs.replace(sample(cpu[name]), contender=name) for name in ran[-1]]

    monkeypatch.setattr("benchmarks.pairs.prepare", lambda: None)
    monkeypatch.setattr("benchmarks.pairs.run_scenario", run_scenario)
    file = tmp_path / "pairs.json"
    done = CliRunner().invoke(pairs, ["json", "--against", "stock", "--pairs", "2", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert ran == [["gateway", "stock"], ["stock", "gateway"]]
    report = msgspec.json.decode(file.read_bytes(), type=PairReport)
    assert [[one.contender for one in pair] for pair in report.samples] == [["gateway", "stock"]] * 2
    assert report.lines[0].ratios == [0.9, 0.9]

"""The bench itself, in a hurry: it starts everything, measures something and tells it. No figure means anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.polling import ENDS_WITHIN

ROOT = Path(__file__).parent.parent.parent
HURRY = ("--rounds", "1", "--seconds", "0.5", "--warmup", "0.5")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the bench pins cores and reads /proc"),
    pytest.mark.skipif(
        not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")), reason="no C compiler"
    ),
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=ENDS_WITHIN
    )


def bench(*arguments: str) -> str:
    """What `python -m benchmarks` prints; it must succeed."""
    done = run(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def measured(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_bytes())
    return document


@pytest.mark.holds("README.md#model-gateway-3")
def test_bench_measures_all_contenders_and_its_document_is_compared_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    printed = bench("json", "--contenders", "direct,gateway,stock", *HURRY, "--json", str(file))
    assert "saturated JSON, 64 connections" in printed
    lines = {line["contender"]: line for line in measured(file)["lines"]}
    assert set(lines) == {"direct", "gateway", "stock"}
    for name, line in lines.items():
        assert not line["faults"], (name, line["faults"])
        assert line["figures"]["rate"]["median"] > 0
    assert lines["stock"]["ratios"]["cpu_us"]["median"] > 0

    judged = bench("targets", str(file))
    assert "| … against stock Tornado + aiohttp, passing through without keys | 2× | 3× |" in judged
    assert "| governed requests per core against LiteLLM | 60× | 100× | not measured | – |" in judged
    assert str(tmp_path / "throughput.svg") in bench("plot", str(file), "--to", str(tmp_path))
    assert (tmp_path / "throughput.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.holds("scaling.md#costs-2")
def test_growth_measures_each_step_and_its_document_is_printed_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "growth.json"
    bench("growth", "workers", *HURRY, "--json", str(file))
    assert [(line["size"], line["faults"]) for line in measured(file)["lines"]] == [(1, []), (2, [])]
    assert "| workers | 2 |" in bench("targets", str(file))
    assert str(tmp_path / "growth.svg") in bench("plot", str(file), "--to", str(tmp_path))


def test_unknown_scenarios_and_contenders_are_refused_with_those_that_exist() -> None:
    for arguments, known in (
        (("jsn",), "json, open, streams"),
        (("json", "--contenders", "nobody"), "direct, gateway"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert known in done.stderr


def test_pairs_compare_two_contenders_and_print_the_ratio(tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    printed = bench("pairs", "json", "--against", "stock", "--pairs", "2", *HURRY[2:], "--json", str(file))
    assert "gateway ÷ stock" in printed
    assert "too few pairs" in printed
    document = measured(file)
    assert document["contenders"] == ["gateway", "stock"]
    line = next(line for line in document["lines"] if line["figure"] == "cpu_us")
    assert len(line["ratios"]) == 2
    assert 0 < line["ratio"] < 1


def test_pairs_with_an_unknown_contender_or_load_are_refused() -> None:
    for arguments, known in (("json", "--against", "nobody"), "gateway-at, stock"), (("idle",), "json, open, streams"):
        done = run("pairs", *arguments)
        assert done.returncode == 2
        assert known in done.stderr


def test_idle_cpu_is_printed_for_the_supervisor_its_worker_and_the_store() -> None:
    printed = bench("idle-cpu", "--seconds", "1")
    for name in ("supervisor", "worker", "store", "all"):
        assert re.search(rf"{name} .*\d+\.\d\d", printed), printed


def test_calls_beside_sessions_of_the_console_are_measured_in_three_kinds_of_phases() -> None:
    done = run("console", "--minutes", "0.05", "--rounds", "1", "--sessions", "3")
    assert "failures: 0" in done.stdout, done.stdout + done.stderr
    for kind in ("none", "elsewhere", "here"):
        assert re.search(rf"│ {kind} ", done.stdout), done.stdout


def test_calls_beside_the_importer_are_measured_with_its_lag() -> None:
    done = run("importer", "--minutes", "0.15", "--rounds", "1", "--lag-rate", "50")
    for kind in ("stopped", "at work"):
        assert re.search(rf"│ {kind} .*│ 0 ", done.stdout), done.stdout + done.stderr
    assert re.search(r"p99 beside the importer / without it: \d+\.\d\d", done.stdout), done.stdout
    assert re.search(r"lag at 50 lines per second: p50 \d+\.\d+ s, p99 \d+\.\d+ s", done.stdout), done.stdout


def test_structure_of_this_tree_is_printed_with_definitions() -> None:
    printed = bench("structure", "--static")
    assert re.search(r"lines of code .*\d,\d\d\d", printed), printed
    assert "lines of code: lines of gateway/ and providers/ that hold code" in printed


def test_memory_of_the_store_is_split_and_computed_once_as_much_leaves_as_comes(tmp_path: Path) -> None:
    file, options = tmp_path / "memory.json", ("--rate", "50", "--day", "4", "--accounts", "3", "--latency", "0.1")
    printed = bench("store-memory", *options, "--share", "0.5", "--json", str(file))
    document = measured(file)
    for name, per_day in (("lines", 2 * 200), ("markers", 200), ("idempotency", 100)):
        part = document["parts"][name]
        assert per_day * 0.6 < part["count"] < per_day * 1.6, (name, part)
        assert 50 < part["bytes"] / part["count"] < 5000, (name, part)
    assert document["calls"] > 600
    assert re.search(r"markers, 24 h .* [KMG]iB", printed), printed


def test_fairness_counts_the_calls_of_a_crowd_and_draws_them() -> None:
    code = (
        "from benchmarks.fairness import drawing, measure, table_of\n"
        "from benchmarks.start import prepare\nprepare()\nfound = [measure(2, 20, 2.0)]\n"
        "assert (found[0].answered, found[0].failed) == (20, 0), found\n"
        "assert '</svg>' in drawing(found, found).svg()\ntable_of(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=ENDS_WITHIN)
    assert done.returncode == 0, done.stderr


def test_reload_tells_of_three_reloads_in_which_each_call_is_answered() -> None:
    code = (
        "from benchmarks.reload import measure, table_of\nfrom benchmarks.start import prepare\nprepare()\n"
        "found = measure(20, 50, quiet=2.0, window=2.0)\n"
        "assert [line.failed for line in found.lines] == [0, 0, 0], found\n"
        "assert [line.visible > 0 for line in found.lines] == [True, False, True], found\ntable_of(found)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=ENDS_WITHIN)
    assert done.returncode == 0, done.stderr

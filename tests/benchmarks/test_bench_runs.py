"""The bench itself, in a hurry: it starts everything, measures something and tells it. No figure means anything."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import fairness, reload
from benchmarks.__main__ import bench as program
from tests.polling import ENDS_WITHIN

ROOT = Path(__file__).parent.parent.parent
HURRY = ("--rounds", "1", "--seconds", "0.3", "--warmup", "0.1")
BRIEFLY = ("--search", "0.3", "--warmup", "0.1")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the bench pins cores and reads /proc"),
    pytest.mark.skipif(
        not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")), reason="no C compiler"
    ),
]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Take back what a command sets for its process, which is this one."""
    handler, limits = signal.getsignal(signal.SIGTERM), resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    signal.signal(signal.SIGTERM, handler)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def run(*arguments: str) -> tuple[int, str]:
    """The exit code and the output of a command of the bench, in this process: each further one imports for seconds."""
    done = CliRunner().invoke(program, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def bench(*arguments: str) -> str:
    """The output of a command; it must succeed."""
    code, told = run(*arguments)
    assert code == 0, told
    return told


def bench_alone(*arguments: str) -> str:
    """What `python -m benchmarks` prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=ENDS_WITHIN
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def measured(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_bytes())
    return document


@pytest.mark.holds("README.md#model-gateway-3")
def test_bench_measures_all_contenders_and_its_document_is_compared_and_drawn(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    printed = bench_alone("json", "--contenders", "direct,gateway,stock", *HURRY, "--json", str(file))
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
        code, told = run(*arguments)
        assert (code, known in told) == (2, True), told


def test_pairs_compare_two_contenders_and_print_the_ratio(tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    printed = bench("pairs", "json", "--against", "stock", "--pairs", "1", *HURRY[2:], "--json", str(file))
    assert "gateway ÷ stock" in printed
    assert "too few pairs" in printed
    document = measured(file)
    assert document["contenders"] == ["gateway", "stock"]
    line = next(line for line in document["lines"] if line["figure"] == "cpu_us")
    gateway, stock = (sample["figures"]["cpu_us"] for sample in document["samples"][0])
    assert line["ratio"] == pytest.approx(gateway / stock)
    assert len(line["ratios"]) == 1


def test_pairs_with_an_unknown_contender_or_load_are_refused() -> None:
    for arguments, known in (("json", "--against", "nobody"), "gateway-at, stock"), (("idle",), "json, open, streams"):
        code, told = run("pairs", *arguments)
        assert (code, known in told) == (2, True), told


def test_idle_cpu_is_printed_for_the_supervisor_its_worker_and_the_store() -> None:
    printed = bench("idle-cpu", "--seconds", "1")
    for name in ("supervisor", "worker", "store", "all"):
        assert re.search(rf"{name} .*\d+\.\d\d", printed), printed


def test_calls_beside_sessions_of_the_console_are_measured_in_three_kinds_of_phases() -> None:
    _, told = run("console", "--minutes", "0.05", "--rounds", "1", "--sessions", "3", *BRIEFLY)
    assert "failures: 0" in told, told
    for kind in ("none", "elsewhere", "here"):
        assert re.search(rf"│ {kind} ", told), told


def test_calls_beside_a_batch_are_measured_in_two_kinds_of_phases() -> None:
    _, told = run("batches", "--minutes", "0.05", "--rounds", "1", "--batches", "1", *BRIEFLY)
    for kind in ("without", "beside"):
        assert re.search(rf"│ {kind} .*│ 0 ", told), told
    assert re.search(r"p99 beside a batch / without one: \d+\.\d\d", told), told


def test_calls_beside_the_importer_are_measured_with_its_lag() -> None:
    _, told = run("importer", "--minutes", "0.05", "--rounds", "1", "--lag-rate", "50", *BRIEFLY)
    for kind in ("stopped", "at work"):
        assert re.search(rf"│ {kind} .*│ 0 ", told), told
    assert re.search(r"p99 beside the importer / without it: \d+\.\d\d", told), told
    assert re.search(r"lag at 50 lines per second: p50 \d+\.\d+ s, p99 \d+\.\d+ s", told), told


@pytest.mark.usefixtures("no_collector")  # see tests/test_layers.py
def test_structure_of_this_tree_is_printed_with_definitions() -> None:
    printed = bench("structure", "--static")
    assert re.search(r"lines of code .*\d,\d\d\d", printed), printed
    assert "lines of code: lines of gateway/ and providers/ that hold code" in printed


def test_memory_of_the_store_is_split_and_computed_once_as_much_leaves_as_comes(tmp_path: Path) -> None:
    file, options = tmp_path / "memory.json", ("--rate", "50", "--day", "4", "--accounts", "3", "--latency", "0.1")
    printed = bench_alone("store-memory", *options, "--share", "0.5", "--json", str(file))
    document = measured(file)
    for name, per_day in (("lines", 2 * 200), ("markers", 200), ("idempotency", 100)):
        part = document["parts"][name]
        assert per_day * 0.6 < part["count"] < per_day * 1.6, (name, part)
        assert 50 < part["bytes"] / part["count"] < 5000, (name, part)
    assert document["calls"] > 600
    assert re.search(r"markers, 24 h .* [KMG]iB", printed), printed


def test_fairness_counts_the_calls_of_a_crowd_and_draws_them() -> None:
    found = [fairness.measure(2, 20, 60.0, most=500)]
    assert (found[0].answered, found[0].failed) == (20, 0), found
    assert "</svg>" in fairness.drawing(found, found).svg()
    assert fairness.table_of(found).row_count == 1


def test_reload_tells_of_three_reloads_in_which_each_call_is_answered() -> None:
    found = reload.measure(20, 50, quiet=2.0, window=2.0)
    assert [line.failed for line in found.lines] == [0, 0, 0], found
    assert [line.visible > 0 for line in found.lines] == [True, False, True], found
    assert reload.table_of(found).row_count == 3

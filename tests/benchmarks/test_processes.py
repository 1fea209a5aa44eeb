"""What a started program gets from the process that measures it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.cores import available_cores
from benchmarks.processes import running
from tests.polling import until_blocking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the bench pins cores and reads /proc")

NAMES = "import os; print('names:', *sorted(name for name in os.environ if name.startswith(('COVERAGE_', 'BENCH_'))))"


def test_measured_process_is_not_measured_by_coverage_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", "a configuration")
    monkeypatch.setenv("COVERAGE_CORE", "sysmon")
    log = tmp_path / "log"
    with running([sys.executable, "-c", NAMES], log=log, cores=available_cores(), env={"BENCH_X": "1"}):
        until_blocking(lambda: b"\n" in log.read_bytes())
    assert log.read_text(encoding="utf-8") == "names: BENCH_X\n"

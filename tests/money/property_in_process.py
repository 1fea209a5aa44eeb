"""The money property in process: 90,000 cases (MONEY_CASES) through the pipeline and every dialect's provider."""

from __future__ import annotations

import os
import time

import pytest

from tests.money.cases import CELLS
from tests.money.rounds import ONLY, SEED, Runner

CASES = int(os.environ.get("MONEY_CASES", "90000"))


@pytest.mark.gen_test(timeout=60 + CASES // 25)
async def test_promises_hold_in_every_case_in_process(runner: Runner) -> None:
    started = time.monotonic()
    report = await runner.run(CASES)
    seconds = time.monotonic() - started
    print(f"\n{report.text()}\n{seconds:.0f} s, {report.calls / seconds:.0f} cases a second")
    assert report.failure is None, report.failure.text(SEED)
    assert len(report.covered) == min(CELLS, CASES) or ONLY
    assert len(report.served) == CELLS or CASES < 30 * CELLS or ONLY

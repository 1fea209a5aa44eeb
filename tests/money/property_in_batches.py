"""The money property as lines of batches: 10,000 cases (MONEY_BATCH_CASES) through the pipeline and every dialect."""

from __future__ import annotations

import os
import time

import pytest

from tests.money.rounds import SEED, Runner

CASES = int(os.environ.get("MONEY_BATCH_CASES", "10000"))


@pytest.mark.gen_test(timeout=60 + CASES // 25)
async def test_promises_hold_in_every_case_as_lines_of_batches(batch_runner: Runner) -> None:
    started = time.monotonic()
    report = await batch_runner.run(CASES)
    seconds = time.monotonic() - started
    print(f"\n{report.text()}\n{seconds:.0f} s, {report.calls / seconds:.0f} cases a second")
    assert report.failure is None, report.failure.text(SEED)

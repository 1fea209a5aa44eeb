"""The money property over sockets: 10,000 cases (MONEY_SOCKET_CASES), with a server of every dialect."""

from __future__ import annotations

import os
import time

import pytest

from tests.money.cases import CELLS
from tests.money.rounds import ONLY, SEED, Runner

CASES = int(os.environ.get("MONEY_SOCKET_CASES", "10000"))


@pytest.mark.gen_test(timeout=60 + CASES // 10)
async def test_promises_hold_in_every_case_over_sockets(socket_runner: Runner) -> None:
    started = time.monotonic()
    report = await socket_runner.run(CASES)
    seconds = time.monotonic() - started
    print(f"\n{report.text()}\n{seconds:.0f} s, {report.calls / seconds:.0f} cases a second")
    assert report.failure is None, report.failure.text(SEED)
    assert len(report.covered) == min(CELLS, CASES) or ONLY

"""The money property of realtime sessions: 4,000 sessions (MONEY_REALTIME_CASES) over sockets."""

from __future__ import annotations

import os
import time

import pytest

from tests.money.in_realtime import RealtimeRunner, is_honest
from tests.money.rounds import SEED

CASES = int(os.environ.get("MONEY_REALTIME_CASES", "4000"))


@pytest.mark.gen_test(timeout=120 + CASES // 5)
async def test_promises_hold_in_every_session(realtime_runner: RealtimeRunner) -> None:
    started = time.monotonic()
    outcomes, found = await realtime_runner.run(CASES, seed=SEED)
    seconds, refused = time.monotonic() - started, sum(one.status != 101 for one in outcomes)
    print(f"\n{len(outcomes)} sessions, {refused} refused, {sum(map(is_honest, outcomes))} honest, {seconds:.0f} s")
    print(f"responses: {sum(len(one.sent) for one in outcomes)}, records: {sum(len(one.records) for one in outcomes)}")
    assert found == []

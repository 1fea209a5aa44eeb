"""A small share of the money property in every run; `tox -e money` runs it in full (docs/operations/processes.md)."""

from __future__ import annotations

from tests.money.in_realtime import RealtimeRunner, is_honest
from tests.money.rounds import SEED, Runner

CASES = 400
SOCKET_CASES = 100
BATCH_CASES = 200
SESSIONS = 100


async def test_promises_hold_for_a_share_of_all_cases_in_process(runner: Runner) -> None:
    report = await runner.run(CASES)
    assert report.failure is None, report.failure.text(SEED)
    assert report.calls == len(report.covered) == CASES


async def test_promises_hold_for_a_share_of_all_cases_over_sockets(socket_runner: Runner) -> None:
    report = await socket_runner.run(SOCKET_CASES)
    assert report.failure is None, report.failure.text(SEED)
    assert report.calls == len(report.covered) == SOCKET_CASES


async def test_promises_hold_for_a_share_of_all_cases_as_lines_of_batches(batch_runner: Runner) -> None:
    report = await batch_runner.run(BATCH_CASES)
    assert report.failure is None, report.failure.text(SEED)
    assert report.calls == len(report.covered) == BATCH_CASES


async def test_promises_hold_for_a_share_of_all_realtime_sessions(realtime_runner: RealtimeRunner) -> None:
    outcomes, found = await realtime_runner.run(SESSIONS, seed=SEED)
    assert found == []
    assert len(outcomes) == SESSIONS
    assert sum(map(is_honest, outcomes)) >= 20

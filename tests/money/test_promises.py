"""A small share of the money property in every run; `tox -e money` runs it in full (docs/operations/processes.md)."""

from __future__ import annotations

from tests.money.rounds import SEED, Runner

CASES = 400
SOCKET_CASES = 100
BATCH_CASES = 200


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

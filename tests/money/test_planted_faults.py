"""The money property finds each planted fault: a promise broken in the code is reported by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tornado.ioloop import IOLoop

from gateway.config.settings import Settings
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.conftest import PEPPER
from tests.money.faults import FAULTS
from tests.money.promises import PROMISES
from tests.money.rounds import SEED, Runner

pytestmark = pytest.mark.slow

CASES = 2000  # at the most: a run stops at the first round that breaks a promise


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Plant a fault; the promises of which one must be reported."""
    plant, expected = FAULTS[request.param]
    plant(monkeypatch)
    return expected


@pytest.fixture
def gateway(fault: set[str], io_loop: IOLoop, store: Store, settings: Settings) -> Iterator[Gateway]:
    """A gateway with the fault."""
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER))
    gateway.overload.max_lag = 0.0
    yield gateway
    io_loop.run_sync(gateway.close)


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-9")
async def test_planted_fault_is_found_and_named(runner: Runner, fault: set[str]) -> None:
    report = await runner.run(CASES)
    assert report.failure is not None, report.text()
    print(f"\nfound after {report.calls} calls:\n{report.failure.text(SEED)}")
    assert report.failure.promises & fault


def test_every_promise_has_a_fault_that_breaks_it() -> None:
    assert {promise for _, expected in FAULTS.values() for promise in expected} == set(PROMISES)

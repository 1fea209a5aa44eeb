"""Which failures of a target count: by account, by request, and by the share of a provider's faults."""

from __future__ import annotations

import pytest

from gateway.errors import ProviderFailed, UpstreamError, UpstreamOverloaded, UpstreamTimeout, UpstreamUnreachable
from gateway.routing.circuit_breaker import OPEN_FOR, Circuit, CircuitKey
from gateway.routing.failure_count import REMEMBERED, WINDOW_SECONDS


def circuit() -> Circuit:
    return Circuit(CircuitKey("p", 0, "m", "chat"), None, lambda changed: None)


def fault(target: Circuit, now: float, *, account: str, digest: int) -> None:
    target.failed(ProviderFailed(), now, account=account, digest=digest, of_plugin=True)


def test_five_faults_a_minute_among_two_thousand_answers_quarantine_nothing() -> None:
    target = circuit()
    for number in range(2000):
        target.succeeded(number * 0.03, 0.1, f"good{number % 50}")
        if not number % 400:
            fault(target, number * 0.03, account=f"poisoned{number}", digest=number)
    assert target.cause is None


def test_a_provider_that_raises_for_most_accounts_is_quarantined() -> None:
    target = circuit()
    for number in range(5):
        target.succeeded(float(number), 0.1, "good")
        fault(target, number + 0.5, account=f"a{number}", digest=0)
    assert target.cause == "plugin"


def test_faults_before_many_answers_do_not_protect_a_provider_that_broke_later() -> None:
    target = circuit()
    for number in range(10_000):
        target.succeeded(number * 0.01, 0.1, "a")
    for number in range(5):
        fault(target, 200.0 + number, account="a", digest=number + 1)
    assert target.cause == "plugin"


def test_failed_connections_of_one_account_count_each_time_once_the_others_have_been_silent() -> None:
    target = circuit()
    target.succeeded(0.0, 0.1, "other")
    for number in range(8):
        target.failed(UpstreamUnreachable(), 1.0 + number, account="a")
    assert target.cause is None
    for number in range(4):
        target.failed(UpstreamUnreachable(), WINDOW_SECONDS + number, account="a")
    assert target.cause == "failures"


def test_two_accounts_that_both_fail_open_the_circuit_after_the_window() -> None:
    target = circuit()
    target.succeeded(0.0, 0.1, "a")
    target.succeeded(0.5, 0.1, "b")
    now = 1.0
    while target.cause is None and now < 60.0:
        target.failed(UpstreamUnreachable(), now, account="a")
        target.failed(UpstreamUnreachable(), now, account="b")
        now += 1.0
    assert now <= WINDOW_SECONDS + 3.0


@pytest.mark.parametrize("error", [UpstreamTimeout(), UpstreamError().began_at("request")], ids=["timeout", "4xx"])
def test_failures_that_any_request_can_cause_need_five_accounts(error: UpstreamError) -> None:
    target = circuit()
    for number in range(50):
        target.failed(error, number * 11.0, account="a", digest=number)
    assert target.cause is None
    for number in range(4):
        target.failed(error, 600.0, account=f"a{number}", digest=number)
    assert target.cause == "failures"


def test_connection_that_is_not_made_in_time_counts_like_a_refused_one() -> None:
    target = circuit()
    for _ in range(5):
        target.failed(UpstreamTimeout().began_at("connection"), 0.0, account="a")
    assert target.cause == "failures"


def test_probes_of_one_account_lengthen_the_open_time_once() -> None:
    target = circuit()
    for number in range(5):
        target.failed(UpstreamTimeout(), 0.0, account=f"a{number}")
    now = OPEN_FOR
    for _ in range(5):
        assert target.ready(now)
        target.enter(now)
        target.failed(UpstreamTimeout(), now, account="a")
        now = max(now, target.until)
    assert now == OPEN_FOR + 2 * OPEN_FOR


def test_ten_accounts_of_twenty_calls_within_ten_seconds_open_the_circuit() -> None:
    target = circuit()
    for number in range(10):
        target.succeeded(number * 0.5, 0.1, "good")
        target.failed(UpstreamOverloaded(), number * 0.5, account=f"a{number}", digest=number)
    assert target.cause == "failures"


def test_one_account_among_twenty_calls_does_not_open_the_circuit() -> None:
    target = circuit()
    for number in range(40):
        target.succeeded(number * 0.2, 0.1, "good")
        target.failed(UpstreamOverloaded(), number * 0.2, account="a", digest=number)
    assert target.cause is None


def test_memory_of_counted_failures_is_bounded() -> None:
    target = circuit()
    for number in range(10 * REMEMBERED):
        target.succeeded(float(number), 0.1, "good")
        target.failed(UpstreamTimeout(), float(number), account=f"a{number}")
    assert len(target.count._counted) <= REMEMBERED

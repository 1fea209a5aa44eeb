"""A place that keeps failing is left alone, longer each time, and probed by one call; callers' mistakes never count."""

from __future__ import annotations

import pytest

from gateway.errors import (
    BadRequest,
    ContextLengthExceeded,
    GatewayError,
    ProviderFailed,
    UpstreamAuthError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.routing.circuit_breaker import OPEN_AT_MOST, OPEN_FOR, Circuit, CircuitKey
from gateway.routing.failure_count import IN_A_ROW


class Chain:
    """A provider, its credential and its target, and what they told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None]] = []
        self.provider = Circuit(CircuitKey("p"), None, self._tell)
        self.credential = Circuit(CircuitKey("p", 0), self.provider, self._tell)
        self.target = Circuit(CircuitKey("p", 0, "m"), self.credential, self._tell)
        self.other = Circuit(CircuitKey("p", 0, "n"), self.credential, self._tell)

    def _tell(self, circuit: Circuit) -> None:
        self.told.append((str(circuit.key), circuit.cause))

    def fail(self, times: int, now: float = 0.0, error: GatewayError | None = None) -> None:
        """So many calls fail, each of another account."""
        for number in range(times):
            self.target.failed(error or UpstreamUnreachable(), now, account=f"a{number}")


@pytest.fixture
def chain() -> Chain:
    return Chain()


def test_five_failures_in_a_row_open_the_circuit_and_four_do_not(chain: Chain) -> None:
    chain.fail(IN_A_ROW - 1)
    assert chain.target.ready(0.0)
    chain.fail(1)
    assert not chain.target.ready(0.0)
    assert not chain.target.ready(OPEN_FOR - 0.1)
    assert chain.other.ready(0.0), "another model of the same credential is none of its business"
    assert chain.told == [("p#1/m", "failures")]


def test_a_success_between_failures_resets_the_count(chain: Chain) -> None:
    chain.fail(IN_A_ROW - 1)
    chain.target.succeeded(0.0, 0.1)
    chain.fail(IN_A_ROW - 1)
    assert chain.target.ready(0.0)


def test_ten_failures_of_twenty_calls_within_ten_seconds_open_the_circuit(chain: Chain) -> None:
    for number in range(20):
        if number % 2:
            chain.target.failed(UpstreamUnreachable(), number * 0.4, account=f"a{number}")
        else:
            chain.target.succeeded(number * 0.4, 0.1)
    assert not chain.target.ready(8.0)


def test_ten_failures_of_twenty_calls_over_a_minute_do_not_open_the_circuit(chain: Chain) -> None:
    for number in range(40):
        if number % 2:
            chain.target.failed(UpstreamUnreachable(), number * 1.5, account=f"a{number}")
        else:
            chain.target.succeeded(number * 1.5, 0.1)
    assert chain.target.ready(60.0)


def test_one_call_probes_an_open_circuit_and_its_success_closes_it(chain: Chain) -> None:
    chain.fail(IN_A_ROW)
    assert chain.target.ready(OPEN_FOR)
    chain.target.enter(OPEN_FOR)
    assert not chain.target.ready(OPEN_FOR + 1), "a second call waits for the probe"
    chain.target.succeeded(OPEN_FOR + 2, 0.1)
    assert chain.target.ready(OPEN_FOR + 2)
    assert chain.told[-1] == ("p#1/m", None)


@pytest.mark.holds("routing.md#health-2")
def test_success_of_a_call_that_began_before_the_probe_was_asked_for_leaves_the_circuit_open(chain: Chain) -> None:
    chain.target.enter(0.0)  # a slow call, before the failures
    chain.fail(IN_A_ROW, now=1.0)
    chain.target.due(10.0)  # an operator wants a probe
    chain.target.succeeded(12.0, 12.0)
    assert chain.target.cause == "failures"
    assert chain.target.ready(12.0)
    chain.target.enter(12.0)
    chain.target.succeeded(13.0, 1.0)
    assert chain.target.cause is None


def test_call_that_enters_an_open_circuit_does_not_delay_its_end(chain: Chain) -> None:
    chain.target.enter(99.0)
    chain.target.failed(UpstreamRateLimited(retry_after=1.0), 100.0, account="a")
    chain.target.enter(100.001)  # a hedged attempt that was chosen before the circuit opened
    chain.target.succeeded(102.0, 1.999, "b")
    assert chain.target.ready(102.5)


def test_each_failed_probe_doubles_the_time_up_to_five_minutes(chain: Chain) -> None:
    chain.fail(IN_A_ROW)
    now, spans = 0.0, []
    for _ in range(6):
        spans.append(chain.target.until - now)
        now = chain.target.until
        assert chain.target.ready(now)
        chain.target.enter(now)
        chain.target.failed(UpstreamUnreachable(), now)
        assert not chain.target.ready(now)
    assert spans == [30.0, 60.0, 120.0, 240.0, 300.0, 300.0]
    assert spans[-1] == OPEN_AT_MOST


def test_probe_without_a_result_allows_another_one_after_a_minute(chain: Chain) -> None:
    chain.fail(IN_A_ROW)
    chain.target.enter(OPEN_FOR)
    assert not chain.target.ready(OPEN_FOR + 59)
    assert chain.target.ready(OPEN_FOR + 61)


@pytest.mark.parametrize("error", [UpstreamRejected(), ContextLengthExceeded("too long"), BadRequest("no")], ids=repr)
def test_caller_errors_never_count_as_failures(chain: Chain, error: GatewayError) -> None:
    chain.fail(50, error=error)
    assert chain.target.ready(0.0)
    assert chain.told == []


def test_a_rate_limit_is_respected_for_the_requested_time_and_needs_no_probe(chain: Chain) -> None:
    chain.fail(1, error=UpstreamRateLimited(retry_after=7.0))
    assert not chain.target.ready(6.9)
    assert chain.target.ready(7.0)
    assert chain.target.cause is None


def test_a_refused_credential_disables_all_its_models_for_a_minute_and_longer_each_time(chain: Chain) -> None:
    chain.fail(1, error=UpstreamAuthError())
    assert not chain.other.ready(59.0)
    assert chain.other.ready(60.0)
    assert chain.told == [("p#1", "credential")]
    chain.other.enter(60.0)
    chain.other.failed(UpstreamAuthError(), 61.0)
    assert not chain.target.ready(180.0)
    assert chain.target.ready(181.0)


def test_credential_without_credit_is_not_used_again(chain: Chain) -> None:
    chain.fail(1, error=UpstreamOverloaded(code="service_unavailable"))
    assert not chain.other.ready(1.0)
    assert chain.told == [("p#1", "credit")]


def test_an_overload_counts_as_a_failure_of_the_target_alone(chain: Chain) -> None:
    chain.fail(IN_A_ROW, error=UpstreamOverloaded())
    assert not chain.target.ready(1.0)
    assert chain.other.ready(1.0)


def test_timeouts_count_as_failures(chain: Chain) -> None:
    chain.fail(IN_A_ROW, error=UpstreamTimeout())
    assert not chain.target.ready(1.0)


def test_a_plugin_that_keeps_raising_is_quarantined_for_the_model_and_returns_after_a_probe(chain: Chain) -> None:
    for number in range(IN_A_ROW):
        chain.target.failed(ProviderFailed(), 0.0, account=f"a{number}", of_plugin=True)
    assert not chain.target.ready(29.0)
    assert chain.other.ready(0.0), "the other models of the provider"
    assert chain.told == [("p#1/m", "plugin")]
    assert chain.target.ready(30.0)
    chain.target.enter(30.0)
    assert not chain.target.ready(31.0), "one call probes"
    chain.target.succeeded(31.0, 0.2)
    assert chain.target.ready(31.0)


def test_a_plugin_that_keeps_blocking_the_loop_is_quarantined_for_all_its_models(chain: Chain) -> None:
    for _ in range(IN_A_ROW):
        chain.provider.stalled(0.0)
    assert not chain.other.ready(29.0)
    assert chain.told == [("p", "plugin")]
    assert chain.other.ready(30.0)
    chain.other.enter(30.0)
    assert not chain.target.ready(31.0), "the probe is for the whole provider"
    chain.other.succeeded(31.0, 0.2)
    assert chain.target.ready(31.0)


def test_circuit_state_of_another_worker_applies_until_it_ends(chain: Chain) -> None:
    assert chain.target.apply("failures", 100.0, 20.0)
    assert not chain.target.ready(119.0)
    assert not chain.target.apply("failures", 100.0, 10.0), "shorter news change nothing"
    assert chain.told == []
    chain.target.recovered()
    assert chain.target.ready(101.0)


def test_latency_is_smoothed_and_starts_with_the_first_measurement(chain: Chain) -> None:
    chain.target.succeeded(0.0, 1.0)
    assert chain.target.latency == 1.0
    chain.target.succeeded(0.0, 2.0)
    assert chain.target.latency == pytest.approx(1.2)


def test_calls_in_flight_when_the_circuit_opens_do_not_extend_its_open_time(chain: Chain) -> None:
    chain.fail(IN_A_ROW)
    chain.fail(20, now=1.0)  # they had entered before, and end now
    assert chain.target.ready(OPEN_FOR)
    assert chain.told == [("p#1/m", "failures")]


@pytest.mark.parametrize(
    "error",
    [UpstreamRateLimited(retry_after=20.0), UpstreamAuthError(), UpstreamOverloaded(code="service_unavailable")],
)
def test_an_answer_to_an_older_call_does_not_shorten_the_open_time(chain: Chain, error: GatewayError) -> None:
    chain.target.enter(0.0)
    chain.fail(1, now=1.0, error=error)
    chain.target.succeeded(2.0, 2.0)
    assert not chain.target.ready(19.0)
    assert len(chain.told) == 1


def test_stalls_of_a_plugin_are_counted_from_zero_after_its_probe(chain: Chain) -> None:
    for _ in range(IN_A_ROW):
        chain.provider.stalled(0.0)
    for _ in range(IN_A_ROW):
        chain.provider.stalled(1.0)  # calls that were under way
    assert chain.target.ready(30.0), "stalls of calls under way lengthened it"
    chain.target.enter(30.0)
    chain.target.succeeded(31.0, 0.1)
    chain.provider.stalled(32.0)
    assert chain.target.ready(32.0), "one new stall is not five"


def test_probe_whose_caller_disconnected_allows_another_one_at_once(chain: Chain) -> None:
    chain.fail(IN_A_ROW)
    chain.target.enter(OPEN_FOR)
    assert not chain.target.ready(OPEN_FOR)
    chain.target.abandoned()
    assert chain.target.ready(OPEN_FOR)
    assert chain.target.in_flight == 0


@pytest.mark.parametrize("wait", [0.0, -5.0, float("nan"), float("inf"), 1e300])
def test_circuit_opens_for_any_requested_wait_and_for_at_most_five_minutes(chain: Chain, wait: float) -> None:
    chain.fail(1, error=UpstreamRateLimited(retry_after=wait))
    assert not chain.target.ready(0.5)
    assert chain.target.ready(OPEN_AT_MOST)

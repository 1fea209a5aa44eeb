"""The counts and the table of a run of the fleet."""

from __future__ import annotations

from tests.fleet.calls import Attempt, Call
from tests.fleet.nginx import read_access_log
from tests.fleet.pages import Page
from tests.fleet.table import Part, count, failures, most_in_a_minute, table

SICK, WELL = "10.0.0.1", "10.0.0.2"
PART = Part("a fault", 100.0, 200.0, sick=SICK, sick_since=110.0, note="it was noticed")


def call(*attempts: Attempt, failure: str = "", kind: str = "chat") -> Call:
    """A call with these attempts, which has ended with the last one."""
    return Call(
        kind,
        "acme",
        5,
        started=attempts[0].started,
        ended=attempts[-1].ended,
        attempts=list(attempts),
        failure=failure,
    )


def test_failures_are_counted_by_the_gateway_that_was_asked_and_by_the_time() -> None:
    calls = [
        call(Attempt("a", 109.0, 120.0, failure="HTTP 502"), Attempt("b", 121.0, 122.0, 200)),
        call(Attempt("c", 111.0, 123.0, failure="no answer"), failure="ReadTimeout"),
        call(Attempt("d", 111.0, 123.0, failure="HTTP 503"), failure="HTTP 503"),
    ]
    counts = count(PART, calls, [], {"a": SICK, "b": WELL, "c": SICK, "d": WELL})
    assert (counts.calls, counts.attempts) == (3, 4)
    assert counts.attempts_failed == {"in flight": 1, "later": 1, "elsewhere": 1}
    assert counts.calls_failed == {"later": 1, "elsewhere": 1}


def test_attempts_and_calls_belong_to_the_part_in_which_they_end() -> None:
    late = call(Attempt("a", 150.0, 190.0, failure="HTTP 503"), Attempt("b", 195.0, 200.0, 200))
    before = call(Attempt("c", 90.0, 99.0, 200))
    counts = count(PART, [late, before], [Page("/site", 90.0, 99.0, "HTTP 503")], {})
    assert (counts.calls, counts.attempts, counts.pages) == (0, 1, 0)


def test_latency_is_of_whole_answers_that_are_no_streams() -> None:
    calls = [
        call(Attempt("a", 150.0, 151.0, 200)),
        call(Attempt("b", 150.0, 159.0, 200), kind="stream"),
        call(Attempt("c", 150.0, 158.0, failure="HTTP 503"), failure="HTTP 503"),
    ]
    assert count(PART, calls, [], {}).seconds == [1.0]


def test_table_has_a_row_for_each_part_and_their_sum() -> None:
    counts = count(
        PART,
        [call(Attempt("a", 109.0, 120.0, failure="cut"), failure="cut"), call(Attempt("b", 150.0, 150.1, 200))],
        [Page("/site", 150.0, 151.0), Page("/site", 150.0, 151.0, "HTTP 503")],
        {"a": SICK},
    )
    lines = table([(PART, counts), (PART, counts)]).splitlines()
    assert lines[2] == lines[3] == "| a fault | 100 | 2 | 2 | 1 | 0 | 0 | 1 | 0 | 100 | 100 | 2 | 1 |"
    assert lines[4] == "| all | 200 | 4 | 4 | 2 | 0 | 0 | 2 | 0 | 100 | 100 | 4 | 2 |"
    assert {line.count("|") for line in lines} == {14}


def test_each_failure_is_named_with_the_note_of_its_part() -> None:
    counts = count(PART, [call(Attempt("a", 109.0, 120.0, failure="cut"), failure="cut")], [], {"a": SICK})
    said = "1 × attempt, chat, in flight: cut; 1 × call, chat, in flight: cut"
    assert failures([(PART, counts)]) == f"- a fault: it was noticed. {said}"


def test_log_of_nginx_names_the_last_gateway_of_an_attempt() -> None:
    lines = (
        "try-1 10.0.0.1:8080, 10.0.0.2:8080 200 502, 200",
        "try-2 10.0.0.3:8080 499 -",
        "- 10.0.0.1:8081 200 200",
        "try-3 - 400 -",
    )
    assert read_access_log("\n".join(lines)) == {"try-1": "10.0.0.2", "try-2": "10.0.0.3"}


def test_excess_over_a_rate_is_that_of_the_worst_interval() -> None:
    steady = [float(number) for number in range(600)]
    assert most_in_a_minute([0.0] * 60 + steady[1:], rate=1.0, burst=60) <= 0
    assert most_in_a_minute([0.0] * 63, rate=1.0, burst=60) == 3
    assert most_in_a_minute([*steady, *[600.0] * 65], rate=1.0, burst=60) == 5

"""A failing test is reported, whatever the collector would run meanwhile."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Observed(Exception):
    """Notes whether the collector may run when it is formatted."""

    def __init__(self) -> None:
        self.collecting: list[bool] = []

    def __str__(self) -> str:
        self.collecting.append(gc.isenabled())
        return "a failure"


class ParsesAtItsEnd:
    """A cycle whose finalizer parses source, as one does that logs a traceback on CPython 3.11; another follows it."""

    followed = False

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ast.parse("a = 1")
        if self.followed:
            ParsesAtItsEnd()


@contextmanager
def finalizers_that_parse() -> Iterator[None]:
    """The collector runs after every few objects, and finds one each time."""
    before = gc.get_threshold()
    gc.collect()
    ParsesAtItsEnd.followed = True
    ParsesAtItsEnd()
    gc.set_threshold(10, 1000, 1000)
    try:
        yield
    finally:
        ParsesAtItsEnd.followed = False
        gc.set_threshold(*before)
        gc.collect()  # the last one would meet somebody else's parse


def report_of(item: pytest.Item, failure: Exception) -> pytest.TestReport:
    """What pytest's own hooks make of a failure."""

    def fail() -> None:
        raise failure

    call = pytest.CallInfo.from_call(fail, "call")
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report


def test_collector_is_off_while_a_failure_is_formatted_and_on_afterwards(request: pytest.FixtureRequest) -> None:
    failure = Observed()
    report = report_of(request.node, failure)
    assert report.failed and "a failure" in report.longreprtext
    assert set(failure.collecting) == {False}
    assert gc.isenabled()


def test_collector_stays_off_after_a_report_where_it_was_off(
    request: pytest.FixtureRequest, no_collector: None
) -> None:
    report_of(request.node, Observed())
    assert not gc.isenabled()


@pytest.mark.slow
def test_failure_is_reported_although_finalizers_that_parse_are_due(request: pytest.FixtureRequest) -> None:
    with finalizers_that_parse():
        report = report_of(request.node, ValueError("reported"))
    assert report.failed

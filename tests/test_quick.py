"""The quick run tries fewer random cases and parameters and loads no SDK of a vendor; a full run tries all."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies

from tests import quick
from tests.standards_hook import PACKAGES

SDKS = {"anthropic", "cohere", "deepgram", "google.genai", "groq", "openai", "playwright"}


def test_quick_run_tries_a_fifth_of_the_random_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "is_on", False)
    assert quick.examples(300) == 300
    monkeypatch.setattr(quick, "is_on", True)
    assert (quick.examples(300), quick.examples(3)) == (60, 1)


class Case:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_quick_run_has_some_of_the_cases_of_a_test_that_has_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "MANY", 20)  # further versions of Python have a smaller number
    monkeypatch.setattr(quick, "EVERY", 1)
    monkeypatch.setattr(quick, "TURN", 0)
    few, many = ([Case(f"a.py::{name}[{n}-x]") for n in range(count)] for name, count in (("few", 20), ("many", 1000)))
    left = [item.nodeid for item in quick.left_out([*few, *many])]  # type: ignore[list-item]
    kept = [case.nodeid for case in many if case.nodeid not in left]
    assert (len(kept), len(left)) == (200, 800) and not any("few" in name for name in left)
    assert left == [item.nodeid for item in quick.left_out([*few, *many])]  # type: ignore[list-item]
    tens = {int(name.partition("[")[2].partition("-")[0]) // 100 for name in kept}
    assert len(tens) == 10  # from everywhere
    monkeypatch.setattr(quick, "MANY", 5)
    assert len(quick.left_out(few)) == 15  # type: ignore[arg-type]


def test_two_versions_have_half_of_the_tests_each_and_together_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[Any] = [Case(f"a.py::test_{number}") for number in range(1000)]
    monkeypatch.setattr(quick, "EVERY", 1)
    monkeypatch.setattr(quick, "TURN", 0)
    assert quick.left_out(cases) == []
    monkeypatch.setattr(quick, "EVERY", 2)
    left = quick.left_out(cases)
    assert 450 < len(left) < 550 and left == quick.left_out(cases)
    monkeypatch.setattr(quick, "TURN", 1)
    assert {item.nodeid for item in quick.left_out(cases)} == {item.nodeid for item in cases} - {
        item.nodeid for item in left
    }


@given(strategies.booleans())
def test_random_cases_run_once_more_with_the_slow_tests(is_any: bool) -> None:
    here = sys.modules[__name__]
    of_this_module = SimpleNamespace(obj=test_quick_run_tries_a_fifth_of_the_random_cases, module=here)
    assert quick.tries_less(of_this_module)  # type: ignore[arg-type]
    elsewhere = SimpleNamespace(obj=test_quick_run_tries_a_fifth_of_the_random_cases, module=SimpleNamespace())
    assert not quick.tries_less(elsewhere)  # type: ignore[arg-type]
    elsewhere.obj = test_random_cases_run_once_more_with_the_slow_tests
    assert quick.tries_less(elsewhere)  # type: ignore[arg-type]
    elsewhere = SimpleNamespace(obj=elsewhere.obj, module=SimpleNamespace(examples=quick.examples))
    assert quick.tries_less(elsewhere)  # type: ignore[arg-type]


def test_quick_run_has_imported_no_sdk_with_its_tests() -> None:
    if not quick.is_on:
        pytest.skip("a full run imports them")
    assert sorted(SDKS & sys.modules.keys() - PACKAGES) == []

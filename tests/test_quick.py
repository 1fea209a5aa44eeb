"""The quick run tries fewer random cases and parameters and loads no SDK of a vendor; a full run tries all."""

from __future__ import annotations

import sys

import pytest

from tests import quick

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
    few, many = ([Case(f"a.py::{name}[{n}-x]") for n in range(count)] for name, count in (("few", 20), ("many", 1000)))
    kept, left = quick.sample([*few, *many])  # type: ignore[list-item]
    names = [item.nodeid for item in kept]
    assert names[:20] == [case.nodeid for case in few] and len(kept) == 220 and len(kept) + len(left) == 1020
    assert names == [case.nodeid for case in [*few, *many] if case.nodeid in names]  # in their order
    assert names == [item.nodeid for item in quick.sample([*few, *many])[0]]  # type: ignore[list-item]
    tens = {int(name.partition("[")[2].partition("-")[0]) // 100 for name in names[20:]}
    assert len(tens) == 10  # from everywhere


def test_quick_run_has_imported_no_sdk_with_its_tests() -> None:
    if not quick.is_on:
        pytest.skip("a full run imports them")
    assert sorted(SDKS & sys.modules.keys()) == []

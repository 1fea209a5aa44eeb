"""The quick run tries fewer random cases and loads no SDK of a vendor; a full run tries all."""

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


def test_quick_run_has_imported_no_sdk_with_its_tests() -> None:
    if not quick.is_on:
        pytest.skip("a full run imports them")
    assert sorted(SDKS & sys.modules.keys()) == []

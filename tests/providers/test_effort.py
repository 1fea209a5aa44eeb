"""Efforts: every one has a word in every vendor's table, and a budget leaves room for an answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from gateway import ChatRequest
from gateway_providers._shared.reasoning_effort import (
    CLAUDE_BUDGETS,
    CLAUDE_LEVELS,
    GEMINI_BUDGETS,
    GEMINI_LEVELS,
    limit_with_budget,
)

FIELDS = (Path(__file__).parents[2] / "docs" / "fields.md").read_text(encoding="utf-8")
EFFORTS = set(get_args(get_args(get_type_hints(ChatRequest)["reasoning_effort"])[0]))


def test_every_effort_is_in_every_table() -> None:
    assert EFFORTS == set(CLAUDE_BUDGETS) == set(GEMINI_BUDGETS) == set(GEMINI_LEVELS)
    assert {*CLAUDE_LEVELS, "none"} == EFFORTS


def test_page_has_the_level_and_the_budget_of_every_effort() -> None:
    section = FIELDS.split("### Reasoning effort\n", 1)[1].split("\n## ", 1)[0]
    rows = {
        row[0]: row[1:]
        for row in re.findall(r"^\| `(\w+)` \| `?(\w+)`? \| (\d+) \| `(\w+)` \| (\d+) \|$", section, re.M)
    }
    assert rows == {
        effort: (
            CLAUDE_LEVELS.get(effort, "off"),
            str(CLAUDE_BUDGETS[effort]),
            GEMINI_LEVELS[effort],
            str(GEMINI_BUDGETS[effort]),
        )
        for effort in EFFORTS
    }


@pytest.mark.holds("prices.md#what-is-held-3")
@pytest.mark.parametrize(
    ("limit", "budget", "most", "fixed", "sent"),
    [
        (4096, 16384, None, False, (20480, 16384)),
        (4096, 32000, 32000, False, (32000, 27904)),
        (8000, 16384, 8000, False, (8000, 4000)),
        (1000, 1024, 1500, False, (1000, 0)),
        (20000, 16384, None, True, (20000, 15904)),
        (50000, 16384, None, True, (50000, 16384)),
        (3000, 16384, None, True, (3000, 1500)),
        (2000, 16384, None, True, (2000, 0)),
        (50000, 16384, 8000, True, (8000, 4000)),
    ],
)
def test_budget_is_added_to_our_default_limit_and_taken_from_the_callers_limit(
    limit: int, budget: int, most: int | None, fixed: bool, sent: tuple[int, int]
) -> None:
    assert limit_with_budget(limit, budget, most=most, fixed=fixed) == sent

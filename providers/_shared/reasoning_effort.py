"""`reasoning_effort` for each vendor family: the name of a level, or a budget of tokens.

The table is in docs/fields.md, "Reasoning effort". For an effort of None nothing is sent, and the model uses its
default. Sharp edge: a budget is part of the output limit. A caller's own limit must not be raised, because the hold
covers no more: use `limit_with_budget(…, fixed=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: For Claude models with levels, on Anthropic's API and on Bedrock; callers handle "none" themselves.
CLAUDE_LEVELS: Mapping[str, str] = MappingProxyType(
    {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
)

#: For Claude models with a budget in tokens; 0: no thinking.
CLAUDE_BUDGETS: Mapping[str, int] = MappingProxyType(
    {"none": 0, "minimal": 1024, "low": 1024, "medium": 4096, "high": 16384, "xhigh": 24576, "max": 32000}
)

GEMINI_LEVELS: Mapping[str, str] = MappingProxyType(
    {
        "none": "MINIMAL",
        "minimal": "MINIMAL",
        "low": "LOW",
        "medium": "MEDIUM",
        "high": "HIGH",
        "xhigh": "XHIGH",
        "max": "XHIGH",
    }
)

GEMINI_BUDGETS: Mapping[str, int] = MappingProxyType(
    {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 32768}
)

MIN_BUDGET = 1024  # tokens; Claude refuses a smaller budget
ANSWER = 4096  # tokens reserved for the answer if its limit includes the thinking, or half of a smaller limit


def limit_with_budget(
    limit: int, budget: int, *, most: int | None = None, fixed: bool = False, least: int = MIN_BUDGET
) -> tuple[int, int]:
    """Output limit and thinking budget to send; the budget is 0 if fewer than `least` tokens remain for it.

    The limit is raised so that `limit` tokens remain for the answer, up to the model's `most`. A `fixed` limit, the
    caller's own, is not raised: `ANSWER` tokens, but at most half of it, are reserved for the answer.
    """
    total = limit if fixed else limit + budget
    total = total if most is None else min(total, most)
    answer = min(ANSWER if fixed else limit, total // 2)
    budget = min(budget, total - answer)
    return (total, budget) if budget >= least else (min(limit, total), 0)

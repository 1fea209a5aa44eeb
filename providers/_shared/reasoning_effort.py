"""`reasoning_effort` in the words of each vendor family: a level's name, or a budget of tokens.

The table is in docs/fields.md, "Reasoning effort". An effort that is None says nothing, and then nothing is sent: the
model's own default holds. Sharp edge: a budget is spent out of the output limit, and the limit of a caller must not be
raised, since it is what money was held for: `limit_with_budget(…, fixed=True)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Claude models that take a level, on Anthropic's API and on Bedrock; "none" is a matter of its own.
CLAUDE_LEVELS: Mapping[str, str] = MappingProxyType(
    {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
)

#: Claude models that take a number of tokens; 0 is no thinking.
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

MIN_BUDGET = 1024  # tokens; Claude refuses less
ANSWER = 4096  # tokens left for an answer whose limit holds its thinking too, unless the limit is tight


def limit_with_budget(
    limit: int, budget: int, *, most: int | None = None, fixed: bool = False, least: int = MIN_BUDGET
) -> tuple[int, int]:
    """Output limit and thinking budget to send; a budget of 0 says that there is too little room for the `least`.

    The limit is raised so that `limit` tokens remain for the answer, up to the model's `most`. A `fixed` one, which is
    the caller's, stays: thinking gets what an answer leaves of it, and where that is tight each gets half.
    """
    total = limit if fixed else limit + budget
    total = total if most is None else min(total, most)
    answer = min(ANSWER if fixed else limit, total // 2)
    budget = min(budget, total - answer)
    return (total, budget) if budget >= least else (min(limit, total), 0)

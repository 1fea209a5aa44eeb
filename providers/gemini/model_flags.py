"""What sets one Gemini model apart from another where a request is concerned: data, so that a new model needs no code.

`flags_of(model, configured)` takes the first pattern (as in file names: `*`, `?`) that matches the upstream's name, the
operator's before the built-in ones. Sharp edge: a name that no pattern knows is told nothing about thinking, since a
model that cannot think refuses the whole request for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .._shared.reasoning_effort import GEMINI_BUDGETS, GEMINI_LEVELS

Level = Literal["MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"]
Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]

_ORDER: tuple[Level, ...] = ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH")


class ModelFlags(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one model takes `reasoning_effort`, and what it wants back."""

    thinking: Literal["level", "budget", "none"] = "none"
    levels: tuple[Level, ...] = ("MINIMAL", "LOW", "MEDIUM", "HIGH")  # the ones it knows
    least_budget: Tokens = 0  # 0 says that thinking may be turned off
    least_thought: Tokens = 0  # the smallest budget other than off
    most_budget: Tokens = 24_576
    max_output_tokens: Tokens = 65_536  # never ask for more
    signatures: bool = False  # refuses a function call without its thought signature

    def level(self, effort: str) -> str:
        """The level for an effort: the next one up that the model knows, else its highest."""
        wanted = _ORDER.index(GEMINI_LEVELS[effort])
        known = sorted(_ORDER.index(level) for level in self.levels)
        return _ORDER[next((rank for rank in known if rank >= wanted), known[-1])]

    def budget(self, effort: str) -> int:
        """The budget for an effort, within what the model takes."""
        wanted = min(max(GEMINI_BUDGETS[effort], self.least_budget), self.most_budget)
        return max(wanted, self.least_thought) if wanted else 0


_THINKS = ModelFlags(thinking="level", signatures=True)

BUILT_IN: tuple[tuple[str, ModelFlags], ...] = (
    ("*-tts*", ModelFlags()),
    ("*embedding*", ModelFlags()),
    ("gemini-2.5*-image*", ModelFlags()),
    ("gemini-2.5-pro*", ModelFlags(thinking="budget", least_budget=128, most_budget=32_768)),
    ("gemini-2.5-flash-lite*", ModelFlags(thinking="budget", least_thought=512)),
    ("gemini-2.5*", ModelFlags(thinking="budget")),
    ("gemini-3*-image*", ModelFlags(signatures=True)),
    ("gemini-3-pro*", ModelFlags(thinking="level", levels=("LOW", "HIGH"), signatures=True)),
    ("gemini-3*-pro*", ModelFlags(thinking="level", levels=("LOW", "MEDIUM", "HIGH"), signatures=True)),
    ("gemini-[3-9]*", _THINKS),
    ("gemini-*-latest", _THINKS),
)


def flags_of(model: str, configured: Mapping[str, ModelFlags]) -> ModelFlags:
    """The flags of the model that the upstream knows by this name."""
    name = model.rpartition("/")[2]
    patterns = (*configured.items(), *BUILT_IN)
    return next((flags for pattern, flags in patterns if fnmatchcase(name, pattern)), ModelFlags())

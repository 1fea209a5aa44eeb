"""What sets one Claude model apart from another where a request is concerned: data, so that a new model needs no code.

`traits_of(model, configured)` looks a model's upstream name up in the operator's table, then in `BUILT_IN`, and takes
each flag from the first pattern (as in file names: `*`, `?`) that matches and says it.
Sharp edge: a Claude model that no pattern knows is taken for one newer than this table, and treated as the newest ones
are. A model of another vendor takes sampling fields: DeepSeek, Kimi, GLM, vLLM and llama.cpp speak this dialect, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

OLD_VERSION = "2023-06-01"
NEW_VERSION = "2026-10-21"  # refuses every sampling field

Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]


class ModelFlags(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one model differs; None leaves a flag to the next pattern that matches."""

    version: Literal["2023-06-01", "2026-10-21"] | None = None  # of the API, in the header `anthropic-version`
    sampling: bool | None = None  # takes temperature and top_p
    thinking_mode: Literal["adaptive", "budget", "none"] | None = None
    thinking_display: Literal["summarized", "omitted"] | None = None  # of adaptive thinking
    thinking_off: bool | None = None  # may be told not to think
    efforts: dict[str, str] | None = None  # levels that the model calls otherwise: xhigh = "high"
    forced_tools: bool | None = None  # takes a tool choice that forces a call
    prefill: bool | None = None  # goes on with a last message of the assistant
    default_max_tokens: Tokens | None = None  # when the caller sets no limit
    max_output_tokens: Tokens | None = None  # never ask for more


class ModelTraits(Struct, frozen=True, kw_only=True):
    """The flags of one model, each with its value."""

    version: str = OLD_VERSION
    sampling: bool = False
    thinking_mode: str = "adaptive"
    thinking_display: str = "summarized"
    thinking_off: bool = True
    efforts: Mapping[str, str] = {}
    forced_tools: bool = True
    prefill: bool = False
    default_max_tokens: int = 4096
    max_output_tokens: int | None = None


_BUDGET = ModelFlags(sampling=True, thinking_mode="budget", prefill=True, max_output_tokens=64_000)
_FIRST_ADAPTIVE = ModelFlags(sampling=True, efforts={"xhigh": "high"})
_ALWAYS_THINKING = ModelFlags(thinking_off=False)
_OF_ANOTHER_VENDOR = ModelFlags(sampling=True)

BUILT_IN: tuple[tuple[str, ModelFlags], ...] = (
    ("*claude-3-7*", _BUDGET),
    ("*claude-3*", ModelFlags(sampling=True, thinking_mode="none", prefill=True)),
    ("*claude-opus-4-5*", _BUDGET),
    ("*claude-sonnet-4-5*", _BUDGET),
    ("*claude-haiku-4-5*", _BUDGET),
    ("*claude-opus-4-6*", _FIRST_ADAPTIVE),
    ("*claude-sonnet-4-6*", _FIRST_ADAPTIVE),
    ("*claude-opus-4-[78]*", _ALWAYS_THINKING),  # these think only when asked, and refuse to be told not to
    ("*claude-opus-4*", structs.replace(_BUDGET, max_output_tokens=32_000)),
    ("*claude-sonnet-4*", _BUDGET),
    ("*claude-opus-5-5*", structs.replace(_ALWAYS_THINKING, forced_tools=False)),
    ("*claude-fable-5-1*", structs.replace(_ALWAYS_THINKING, forced_tools=False)),
    ("*claude-fable-*", _ALWAYS_THINKING),
    ("*claude-mythos-*", _ALWAYS_THINKING),
)


def traits_of(model: str, configured: Mapping[str, ModelFlags]) -> ModelTraits:
    """The traits of the model that the upstream knows by this name."""
    found: dict[str, object] = {}
    for pattern, flags in (*configured.items(), *_built_in(model)):
        if fnmatchcase(model, pattern):
            found = {**{name: value for name, value in structs.asdict(flags).items() if value is not None}, **found}
    traits = ModelTraits(**found)  # type: ignore[arg-type]  # the names and types of ModelFlags
    return structs.replace(traits, sampling=False) if traits.version == NEW_VERSION else traits


def _built_in(model: str) -> tuple[tuple[str, ModelFlags], ...]:
    """The first entry of the table that matches, being the most specific one."""
    if "claude" not in model:
        return (("*", _OF_ANOTHER_VENDOR),)
    return next(((entry,) for entry in BUILT_IN if fnmatchcase(model, entry[0])), ())

"""What sets one Cohere model apart from another: data, so that a new model needs no new code.

`traits_of(model, configured)` takes each flag from the first pattern (as in file names: `*`, `?`) of the operator's
table that matches and says it, then from what the name gives away.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

InputType = Literal["search_document", "search_query", "classification", "clustering", "image"]
SafetyMode = Literal["CONTEXTUAL", "STRICT", "OFF"]


class ModelFlags(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one model differs; None leaves a flag to the next pattern that matches."""

    thinking: bool | None = None  # thinks before it answers, and can be told how much
    safety_mode: SafetyMode | None = None  # instead of the model's own
    input_type: InputType | None = None  # of embeddings, when the caller names none


class ModelTraits(Struct, frozen=True, kw_only=True):
    """The flags of one model, each with its value."""

    thinking: bool = False
    safety_mode: SafetyMode | None = None
    input_type: InputType = "search_document"


def traits_of(model: str, configured: Mapping[str, ModelFlags]) -> ModelTraits:
    """The traits of the model that Cohere knows by this name."""
    matching = [flags for pattern, flags in configured.items() if fnmatchcase(model, pattern)]
    thinking = next((flags.thinking for flags in matching if flags.thinking is not None), "reasoning" in model)
    return ModelTraits(
        thinking=thinking,
        safety_mode=next((flags.safety_mode for flags in matching if flags.safety_mode is not None), None),
        input_type=next((flags.input_type for flags in matching if flags.input_type is not None), "search_document"),
    )

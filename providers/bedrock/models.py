"""What a model on Bedrock can do, by the shape of its name: data, so that a new model needs no new code.

`model_of(name, configured)` combines the operator's table with what `anthropic` knows of Claude models, and with
the rest: those take both sampling fields, and no `reasoning_effort`. Sharp edge: names carry a region's prefix, as in
`eu.anthropic.claude-…`, or are ARNs, so patterns begin with `*`; an ARN of one's own profile shows no model at all, and
needs an entry in the operator's table to be treated as anything special.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from ..anthropic.models import ModelFlags, ModelTraits, traits_of


class BedrockFlags(ModelFlags, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one model differs; None leaves a flag to the next pattern that matches."""

    cache_points: bool | None = None  # the prompt may say where to cache it
    native_messages: bool | None = None  # a Claude model that gets Messages requests as they came
    additional_fields: dict[str, Any] | None = None  # sent as additionalModelRequestFields


class Model(Struct, frozen=True, kw_only=True):
    """One model, each flag with its value."""

    traits: ModelTraits
    claude: bool
    cache_points: bool
    native_messages: bool
    additional_fields: Mapping[str, Any]


_NO_CLAUDE = ModelFlags(sampling=True, thinking_mode="none", prefill=True)
_WITHOUT_CACHE = ("*claude-3-opus*", "*claude-3-sonnet*", "*claude-3-haiku*", "*claude-v2*", "*claude-instant*")


def model_of(name: str, configured: Mapping[str, BedrockFlags]) -> Model:
    """The model that Bedrock knows by this name."""
    claude = "claude" in name
    known = {pattern: _of_claude(flags) for pattern, flags in configured.items()}
    if not claude:
        known["**"] = _NO_CLAUDE  # any name, and no pattern that anyone would write
    mine = [flags for pattern, flags in configured.items() if fnmatchcase(name, pattern)]
    points = next((flags.cache_points for flags in mine if flags.cache_points is not None), _has_cache(name))
    native = next((flags.native_messages for flags in mine if flags.native_messages is not None), claude)
    fields = next((flags.additional_fields for flags in mine if flags.additional_fields is not None), {})
    return Model(
        traits=traits_of(name, known),
        claude=claude,
        cache_points=points,
        native_messages=native,
        additional_fields=fields,
    )


def _of_claude(flags: BedrockFlags) -> ModelFlags:
    return ModelFlags(**{name: getattr(flags, name) for name in ModelFlags.__struct_fields__})


def _has_cache(name: str) -> bool:
    if "amazon.nova" in name:
        return True
    return "claude" in name and not any(fnmatchcase(name, pattern) for pattern in _WITHOUT_CACHE)

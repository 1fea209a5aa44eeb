"""Log probabilities with the members of the standard alone: llama.cpp adds the `id` of each token, others their own."""

from __future__ import annotations

from typing import Any

PARTS = ("content", "refusal")
MEMBERS = ("token", "logprob", "bytes")


def standard_logprobs(value: Any) -> Any:
    """The object of a choice; as it is if it has another form."""
    if not isinstance(value, dict) or value.keys().isdisjoint(PARTS):
        return value
    return {name: _places(value[name]) for name in PARTS if name in value}


def _places(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [_place(place) for place in value if isinstance(place, dict)]


def _place(place: dict[str, Any]) -> dict[str, Any]:
    top = place.get("top_logprobs")
    found = {name: place[name] for name in MEMBERS if name in place}
    if isinstance(top, list):
        found["top_logprobs"] = [
            {name: one[name] for name in MEMBERS if name in one} for one in top if isinstance(one, dict)
        ]
    return found

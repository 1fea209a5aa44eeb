"""Validates what a provider says about inputs, completes it, and writes the answer (docs/api.md).

Each result has all categories: one that the provider does not know is false, with the score 0. Sharp edge: a plugin may
have put anything into the answer; an invalid answer counts as the upstream's failure, and another target may be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.scoring.moderation import (
    CATEGORIES,
    ModerationAnswer,
    ModerationImage,
    ModerationRequest,
    ModerationResult,
    Part,
)

KINDS = ("text", "image")

_encode = msgspec.json.Encoder().encode


def validate(answer: ModerationAnswer, request: ModerationRequest) -> ModerationAnswer:
    """The answer with valid, complete results; raises UpstreamInvalidResponse otherwise."""
    if not isinstance(answer, ModerationAnswer) or not isinstance(answer.results, list):
        raise UpstreamInvalidResponse(detail=f"{type(answer).__name__} instead of a ModerationAnswer")
    inputs = request.inputs
    if len(answer.results) != len(inputs):
        raise UpstreamInvalidResponse(detail=f"{len(answer.results)} results for {len(inputs)} inputs")
    return ModerationAnswer([_complete(one, parts) for one, parts in zip(answer.results, inputs, strict=True)])


def write_results(answer: ModerationAnswer, *, answer_id: str, model: str) -> bytes:
    """The whole body of the answer."""
    return _encode({"id": answer_id, "model": model, "results": answer.results})


def _complete(result: ModerationResult, parts: Sequence[str | Part]) -> ModerationResult:
    if not isinstance(result, ModerationResult) or type(result.flagged) is not bool:
        raise UpstreamInvalidResponse(detail="a result that does not say whether its input is flagged")
    flags, scores, kinds = (
        _table(found) for found in (result.categories, result.category_scores, result.category_applied_input_types)
    )
    is_all_images = all(isinstance(part, ModerationImage) for part in parts)
    # Models before `omni-moderation` judge texts alone, and do not say so.
    usual = [] if is_all_images else ["text"]
    return ModerationResult(
        result.flagged,
        {name: _flag(flags.get(name)) for name in CATEGORIES},
        {name: _score(scores.get(name)) for name in CATEGORIES},
        {name: _kinds(kinds[name]) if name in kinds else usual if name in scores else [] for name in CATEGORIES},
    )


def _table(found: Any) -> dict[Any, Any]:
    if not isinstance(found, dict):
        raise UpstreamInvalidResponse(detail=f"{type(found).__name__} instead of a table of categories")
    return found


def _flag(value: Any) -> bool:
    if value is None:
        return False
    if type(value) is not bool:
        raise UpstreamInvalidResponse(detail="a category that is neither true nor false")
    return value


def _score(value: Any) -> float:
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not 0 <= value <= 1:  # NaN is not
        raise UpstreamInvalidResponse(detail="a score that is no number from 0 to 1")
    return float(value)


def _kinds(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise UpstreamInvalidResponse(detail="types of inputs that are no list")
    return [kind for kind in KINDS if kind in value]

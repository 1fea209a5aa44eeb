"""Moderation by OpenAI's `POST /moderations`, which other servers have copied: the input as it was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct

from gateway import Moderation, ModerationAnswer, ModerationRequest, ModerationResult, Target
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_document

from .._shared.documents import decoded
from .server import OpenAIServer, fields_body


class WireResult(Struct):
    """One result as it comes; a category that a model does not know may be null."""

    flagged: bool
    categories: dict[str, bool | None]
    category_scores: dict[str, float | None]
    category_applied_input_types: dict[str, list[str]] | None = None


class WireResults(Struct):
    """The answer as it comes."""

    results: list[WireResult] = []
    error: Any = UNSET


_decoder = msgspec.json.Decoder(WireResults)


class OpenAIModeration(OpenAIServer, Moderation):
    """`POST /moderations`."""

    moderation_fields: ClassVar[frozenset[str] | None] = None

    async def moderate(self, request: ModerationRequest, target: Target) -> ModerationAnswer:
        """One JSON answer."""
        body = fields_body(dict(request.fields), target, self.options)
        return read_results(await self.post_whole("/moderations", body, target), self.hidden)


def read_results(body: bytes, hidden: Sequence[str] = ()) -> ModerationAnswer:
    """The results in a JSON body; an error that rides in it is raised."""
    answer = decoded(_decoder, body, strict=True)
    if answer.error:
        raise error_of_document(answer.error, hidden)
    if not answer.results:
        raise UpstreamInvalidResponse(detail="an answer without results")
    return ModerationAnswer([_result(one) for one in answer.results])


def _result(one: WireResult) -> ModerationResult:
    return ModerationResult(
        one.flagged,
        {name: flag for name, flag in one.categories.items() if flag is not None},
        {name: score for name, score in one.category_scores.items() if score is not None},
        one.category_applied_input_types or {},
    )

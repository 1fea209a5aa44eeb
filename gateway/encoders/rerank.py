"""Validates a provider's ranking, sorts it, and writes the answer (docs/api.md).

`validate(answer, request)` returns the results by falling score, at most `top_n` of them. Sharp edge: a plugin may have
put anything into the answer; an invalid answer counts as the upstream's failure, and another target may be tried.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec

from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.isolation import yield_to_loop
from gateway.schemas.scoring.rerank import RankedDocument, RerankAnswer, RerankRequest

BATCH = 64  # documents written between two yields to the event loop

_encode = msgspec.json.Encoder().encode


def validate(answer: RerankAnswer, request: RerankRequest) -> RerankAnswer:
    """The answer with valid, sorted results; raises UpstreamInvalidResponse otherwise."""
    if not isinstance(answer, RerankAnswer) or not isinstance(answer.results, list):
        raise UpstreamInvalidResponse(detail=f"{type(answer).__name__} instead of a RerankAnswer")
    count = len(request.documents)
    if not 1 <= len(answer.results) <= count:
        raise UpstreamInvalidResponse(detail=f"{len(answer.results)} results for {count} documents")
    scores: dict[int, float] = {}
    for result in answer.results:
        if not isinstance(result, RankedDocument):
            raise UpstreamInvalidResponse(detail=f"{type(result).__name__} instead of a RankedDocument")
        index = result.index
        if type(index) is not int or not 0 <= index < count or index in scores:
            raise UpstreamInvalidResponse(detail="a result that belongs to no document, or to one that has a result")
        scores[index] = _score(result.relevance_score)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[: request.wanted]
    return RerankAnswer([RankedDocument(index, score) for index, score in ranked], answer.usage)


async def write_ranking(
    answer: RerankAnswer, request: RerankRequest, *, answer_id: str, model: str, tokens: int, units: int
) -> bytes:
    """The whole body of the answer, with the texts of the documents if the request asks for them."""
    parts = []
    for place, result in enumerate(answer.results):
        if place and not place % BATCH:
            await yield_to_loop()
        item: dict[str, Any] = {"index": result.index, "relevance_score": result.relevance_score}
        if request.return_documents:
            item["document"] = {"text": request.texts[result.index]}
        parts.append(_encode(item))
    rest = {
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "meta": {"billed_units": {"search_units": units}},
    }
    return b'{"id":%b,"object":"list","results":[%b],%b' % (_encode(answer_id), b",".join(parts), _encode(rest)[1:])


def _score(score: Any) -> float:
    if type(score) in (int, float):
        try:
            number = float(score)
        except OverflowError:
            number = float("inf")
        if isfinite(number):
            return number
    raise UpstreamInvalidResponse(detail="a score that is no finite number")

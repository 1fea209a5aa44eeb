"""Reranking by Cohere's `POST /v2/rerank` (docs/providers/cohere.md). Cohere counts search units, and no tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway import RankedDocument, RerankAnswer, RerankRequest

from .._shared.rerank_usage import rerank_usage
from .answer import read_document


class WireRanked(Struct):
    """One result."""

    index: int
    relevance_score: float


class WireRanking(Struct):
    """The answer."""

    results: list[WireRanked]
    meta: Any = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WireRanking)


def rerank_body(request: RerankRequest, model: str) -> bytes:
    """The JSON to send."""
    fields: dict[str, Any] = {"model": model, "query": request.query, "documents": request.texts}
    if request.top_n is not None:
        fields["top_n"] = request.wanted
    if request.max_tokens_per_doc is not None:
        fields["max_tokens_per_doc"] = request.max_tokens_per_doc
    return _encoder.encode(fields)


def read_ranking(body: bytes, hidden: Sequence[str] = ()) -> RerankAnswer:
    """The results in a JSON body; an error that rides in it is raised."""
    answer = read_document(_decoder, body, hidden, strict=True)
    billed = answer.meta.get("billed_units") if isinstance(answer.meta, dict) else None
    units: dict[str, Any] = billed if isinstance(billed, dict) else {}
    # A model that Cohere bills by tokens has them here.
    usage = rerank_usage(units.get("input_tokens"), units.get("search_units"))
    results = [RankedDocument(one.index, one.relevance_score) for one in answer.results]
    return RerankAnswer(results, usage)

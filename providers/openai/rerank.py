"""Reranking as Jina defined it and most servers copied it: Jina, Voyage, vLLM, llama.cpp, Together, OpenRouter, …

The results are in `results`, or in `data` as Voyage writes it. Some servers send only `total_tokens`, and the server
text-embeddings-inference sends a bare list with `score`. Sharp edge: documents are sent as texts, and the texts that
come back are not read, because the gateway has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway import CompletionUsage, RankedDocument, Rerank, RerankAnswer, RerankRequest, Target
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_document

from .._shared.documents import decoded
from .._shared.rerank_usage import rerank_usage
from .server import OpenAIServer


class WireRanked(Struct):
    """One result as it comes."""

    index: int
    relevance_score: float | None = None
    score: float | None = None  # text-embeddings-inference


class WireRanking(Struct):
    """The answer as it comes."""

    results: list[WireRanked] | None = None
    data: list[WireRanked] | None = None  # Voyage
    usage: Any = None
    meta: Any = None  # Cohere's, of those who copy it
    error: Any = UNSET


_decoder = msgspec.json.Decoder(WireRanking)


class OpenAIRerank(OpenAIServer, Rerank):
    """`POST /rerank`."""

    rerank_fields: ClassVar[frozenset[str] | None] = frozenset()

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        """One JSON answer."""
        body = rerank_body(request, target, self.quirks.rename)
        return read_ranking(await self.post_whole("/rerank", body, target), self.hidden)


def rerank_body(request: RerankRequest, target: Target, rename: Any) -> bytes:
    """The JSON to send, with each field by the server's name for it."""
    fields = {name: value for name, value in request.fields.items() if name != "return_documents"}
    fields["model"] = Raw(msgspec.json.encode(target.model))
    fields["documents"] = Raw(msgspec.json.encode(request.texts))
    return msgspec.json.encode({rename.get(name, name): value for name, value in fields.items()})


def read_ranking(body: bytes, hidden: Sequence[str] = ()) -> RerankAnswer:
    """The results in a JSON body; an error that rides in it is raised."""
    if body[:1] == b"[":
        body = b'{"results":%b}' % body
    answer = decoded(_decoder, body, strict=True)
    if answer.error:
        raise error_of_document(answer.error, hidden)
    results = answer.results or answer.data
    if not results:
        raise UpstreamInvalidResponse(detail="an answer without results")
    return RerankAnswer([RankedDocument(one.index, _score(one)) for one in results], _usage(answer))


def _score(one: WireRanked) -> float:
    score = one.score if one.relevance_score is None else one.relevance_score
    if score is None:
        raise UpstreamInvalidResponse(detail="a result without a score")
    return score


def _usage(answer: WireRanking) -> CompletionUsage | None:
    """The tokens, all of which are read; Jina's copies leave out `prompt_tokens`, or send 0."""
    usage: dict[str, Any] = answer.usage if isinstance(answer.usage, dict) else {}
    billed = answer.meta.get("billed_units") if isinstance(answer.meta, dict) else None
    units = billed.get("search_units") if isinstance(billed, dict) else None
    return rerank_usage(usage.get("prompt_tokens") or usage.get("total_tokens"), units)

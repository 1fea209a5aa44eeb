"""A ranking by words: the score of a document is the share of the query's words that it has."""

from __future__ import annotations

from typing import Any

from gateway import CompletionUsage, RankedDocument, RerankAnswer, RerankRequest

from .script import Script

PIECES = 100  # documents in a search unit


def rerank_answer(request: RerankRequest, script: Script) -> RerankAnswer:
    """A result for each document; words count as tokens, those of the query once for each document."""
    query = _words(request.query)
    results = [
        RankedDocument(index, len(query & _words(text)) / max(1, len(query)))
        for index, text in enumerate(request.texts)
    ]
    each = len(request.query.split())
    tokens = sum(each + len(text.split()) for text in request.texts)
    units = -(-len(results) // PIECES)
    if script.usage == "none":
        return RerankAnswer(results)
    wrong: Any = script.wrong(tokens)
    if wrong is not None:
        return RerankAnswer(results, CompletionUsage(wrong, 0, wrong, search_units=script.wrong(units)))
    return RerankAnswer(results, CompletionUsage(tokens, 0, tokens, search_units=units))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split())

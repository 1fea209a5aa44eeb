"""What a provider of rerankings must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from gateway.encoders.rerank import validate
from gateway.plugins.provider import Rerank
from gateway.schemas.scoring.rerank import RerankAnswer, RerankRequest, decode_rerank_request
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, Subject, assert_sane_usage

QUERY = "grey herons at dawn"
DOCUMENTS = ["five grey herons", "the price of tin", "a harbour at dawn"]


def rerank_question(query: str = QUERY, documents: Any = None, **fields: Any) -> RerankRequest:
    """A request as the gateway would hand it to a provider."""
    body = {"model": "public-name", "query": query, "documents": documents or DOCUMENTS, **fields}
    return decode_rerank_request(msgspec.json.encode(body))


async def ranking_is_sound(subject: Subject) -> None:
    """A result for each document, with a finite score; possible usage."""
    answer = await _sound(subject, rerank_question())
    assert len(answer.results) == len(DOCUMENTS), f"{len(answer.results)} results for {len(DOCUMENTS)} documents"
    if answer.usage is not None:
        assert_sane_usage(answer.usage)
    else:
        subject.notes.append(whole_call_cases.NO_USAGE)


async def results_name_their_documents(subject: Subject) -> None:
    """The index of a result is the place of its document: in another order each document keeps its score."""
    scores = await _scores(subject, DOCUMENTS)
    again = await _scores(subject, DOCUMENTS[::-1])
    for text, score in scores.items():
        assert _close(score, again[text]), f"{text!r} has another score if the documents are in another order"


async def documents_may_be_objects(subject: Subject) -> None:
    """A document may be `{"text": …}`; `request.texts` has the text of each."""
    there = await _sound(subject, rerank_question(documents=[{"text": text} for text in DOCUMENTS]))
    found = {DOCUMENTS[result.index]: result.relevance_score for result in there.results}
    for text, score in (await _scores(subject, DOCUMENTS)).items():
        assert _close(score, found[text]), f"{text!r} has another score as an object"


async def top_n_keeps_the_best(subject: Subject) -> None:
    """With `top_n` the best documents come back; more of them do no harm."""
    [best, *_] = (await _sound(subject, rerank_question())).results
    [only] = (await _sound(subject, rerank_question(top_n=1))).results
    assert only.index == best.index or _close(only.relevance_score, best.relevance_score), "top_n lost the best one"


async def rerank_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = rerank_question()
    call = _provider(subject).rerank(request, subject.target)
    await whole_call_cases.assert_unchanged(request, call, "query", "documents", "texts")


async def rerank_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls: each gets its own results."""
    sizes = range(1, 9)  # a number in the case
    answers = await asyncio.gather(*(_sound(subject, rerank_question(documents=["a heron"] * n)) for n in sizes))
    assert [len(answer.results) for answer in answers] == list(sizes), "calls at once got each other's results"


async def _scores(subject: Subject, documents: list[str]) -> dict[str, float]:
    answer = await _sound(subject, rerank_question(documents=documents))
    return {documents[result.index]: result.relevance_score for result in answer.results}


async def _sound(subject: Subject, request: RerankRequest) -> RerankAnswer:
    answer = await _provider(subject).rerank(request, subject.target)
    return whole_call_cases.assert_valid(validate, answer, request)


def _provider(subject: Subject) -> Rerank:
    return cast("Rerank", subject.provider)


def _close(one: float, other: float) -> bool:
    # Real engines add in another order for another batch, so the last digits differ.
    return abs(one - other) <= 1e-3 * max(1.0, abs(one))


async def _call(subject: Subject, target: Any) -> object:
    return await _provider(subject).rerank(rerank_question(), target)


CASES: tuple[Case, ...] = (
    ranking_is_sound,
    results_name_their_documents,
    documents_may_be_objects,
    top_n_keeps_the_best,
    rerank_request_is_left_as_it_was,
    rerank_calls_at_once_do_not_mix,
    *whole_call_cases.local_cases("rerank", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = whole_call_cases.upstream_cases("rerank", _call)

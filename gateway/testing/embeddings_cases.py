"""What a provider of embeddings must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.encoders.embeddings import validate
from gateway.schemas.embeddings import EmbeddingAnswer, EmbeddingRequest, decode_embedding_request
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, NotConcerned, Subject, assert_sane_usage

TEXTS = ["a harbour at dawn", "five grey herons", "the price of tin"]


def embedding_question(given: Any = "a harbour at dawn", **fields: Any) -> EmbeddingRequest:
    """A request as the gateway would hand it to a provider."""
    return decode_embedding_request(msgspec.json.encode({"model": "public-name", "input": given, **fields}))


async def vectors_are_sound(subject: Subject) -> None:
    """One vector per input, all of one length, finite; possible usage."""
    answer = await _sound(subject, embedding_question(TEXTS))
    if answer.usage is not None:
        assert_sane_usage(answer.usage)
    else:
        subject.notes.append(whole_call_cases.NO_USAGE)
    await _sound(subject, embedding_question(TEXTS[0]))


async def vectors_keep_their_order(subject: Subject) -> None:
    """Each vector belongs to the input at its place: it is the one that its text has alone."""
    there = _numbers(await _sound(subject, embedding_question(TEXTS)))
    for place, (text, vector) in enumerate(zip(TEXTS, there, strict=True), 1):
        (alone,) = _numbers(await _sound(subject, embedding_question(text)))
        assert _close(vector, alone), f"vector {place} of {len(TEXTS)} is not the one that its text has alone"
    assert not _close(there[0], there[1]), "different texts have the same vector"


async def dimensions_are_honoured(subject: Subject) -> None:
    """Vectors are as long as was asked for, where the provider says it honours that."""
    honoured = subject.embeddings.embedding_fields
    if honoured is not None and "dimensions" not in honoured:
        raise NotConcerned("`embedding_fields` does not name dimensions")
    await _sound(subject, embedding_question(TEXTS, dimensions=8))


async def embedding_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = embedding_question(TEXTS)
    await whole_call_cases.assert_unchanged(request, subject.embeddings.embed(request, subject.target), "input")


async def embedding_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls: each gets its own vectors."""
    alone = _numbers(await _sound(subject, embedding_question("number 3")))[0]
    answers = await asyncio.gather(*(_sound(subject, embedding_question(f"number {n}")) for n in range(8)))
    assert _close(alone, _numbers(answers[3])[0]), "calls at once got each other's vectors"


async def _sound(subject: Subject, request: EmbeddingRequest) -> EmbeddingAnswer:
    answer = await subject.embeddings.embed(request, subject.target)
    try:
        return await validate(answer, request)
    except Exception as error:
        # The kit judges whatever a third party's code returns.
        raise AssertionError(f"the answer is none: {getattr(error, 'detail', None) or error}") from error


def _numbers(answer: EmbeddingAnswer) -> list[Sequence[float]]:
    return [array("f", vector) if isinstance(vector, bytes) else vector for vector in answer.vectors]


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    # Real engines add in another order for another batch, so the last digits differ.
    return len(one) == len(other) and all(abs(a - b) <= 1e-3 for a, b in zip(one, other, strict=True))


async def _call(subject: Subject, target: Any) -> object:
    return await subject.embeddings.embed(embedding_question(), target)


CASES: tuple[Case, ...] = (
    vectors_are_sound,
    vectors_keep_their_order,
    dimensions_are_honoured,
    embedding_request_is_left_as_it_was,
    embedding_calls_at_once_do_not_mix,
    *whole_call_cases.local_cases("embeddings", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = whole_call_cases.upstream_cases("embeddings", _call)

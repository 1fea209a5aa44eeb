"""What a provider of moderation must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from gateway.encoders.moderation import validate
from gateway.plugins.provider import Moderation
from gateway.schemas.scoring.moderation import (
    CATEGORIES,
    ModerationAnswer,
    ModerationRequest,
    decode_moderation_request,
)
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, NotConcerned, Subject

TEXTS = ["a harbour at dawn", "I want to kill them all", "the price of tin"]
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNoaGgAAAMEAYFL09IQAAAAAElFTkSuQmCC"
)


def moderation_question(given: Any = TEXTS[0]) -> ModerationRequest:
    """A request as the gateway would hand it to a provider."""
    return decode_moderation_request(msgspec.json.encode({"model": "public-name", "input": given}))


async def results_are_sound(subject: Subject) -> None:
    """One result for a text and for each of several, with scores from 0 to 1 of known categories."""
    for given in (TEXTS[0], TEXTS):
        for result in (await _answer(subject, moderation_question(given))).results:
            known = set(result.category_scores) & set(CATEGORIES)
            assert known, f"no category is one of the wire's: {sorted(result.category_scores)[:13]}"
        await _sound(subject, moderation_question(given))


async def results_keep_their_order(subject: Subject) -> None:
    """Each result belongs to the text at its place: it is the one that its text has alone."""
    there = (await _sound(subject, moderation_question(TEXTS))).results
    for place, (text, result) in enumerate(zip(TEXTS, there, strict=True), 1):
        [alone] = (await _sound(subject, moderation_question(text))).results
        for name, score in alone.category_scores.items():
            same = abs(score - result.category_scores[name]) <= 1e-3
            assert same, f"result {place} of {len(TEXTS)} is not the one that its text has alone"


async def parts_have_one_result(subject: Subject) -> None:
    """A list of parts is one input."""
    await _sound(subject, moderation_question([{"type": "text", "text": text} for text in TEXTS]))


async def images_are_judged(subject: Subject) -> None:
    """An image among the parts does no harm, where the provider says that it takes images."""
    if not _provider(subject).moderates_images:
        raise NotConcerned("`moderates_images` is false")
    image = {"type": "image_url", "image_url": {"url": PIXEL}}
    await _sound(subject, moderation_question([{"type": "text", "text": TEXTS[0]}, image]))


async def moderation_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = moderation_question(TEXTS)
    await whole_call_cases.assert_unchanged(request, _provider(subject).moderate(request, subject.target), "input")


async def moderation_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls: each gets its own results."""
    sizes = range(1, 9)  # a number in the case
    answers = await asyncio.gather(*(_sound(subject, moderation_question(TEXTS[:1] * n)) for n in sizes))
    assert [len(answer.results) for answer in answers] == list(sizes), "calls at once got each other's results"


async def _sound(subject: Subject, request: ModerationRequest) -> ModerationAnswer:
    return whole_call_cases.assert_valid(validate, await _answer(subject, request), request)


async def _answer(subject: Subject, request: ModerationRequest) -> ModerationAnswer:
    return await _provider(subject).moderate(request, subject.target)


def _provider(subject: Subject) -> Moderation:
    return cast("Moderation", subject.provider)


async def _call(subject: Subject, target: Any) -> object:
    return await _provider(subject).moderate(moderation_question(), target)


CASES: tuple[Case, ...] = (
    results_are_sound,
    results_keep_their_order,
    parts_have_one_result,
    images_are_judged,
    moderation_request_is_left_as_it_was,
    moderation_calls_at_once_do_not_mix,
    *whole_call_cases.local_cases("moderation", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = whole_call_cases.upstream_cases("moderation", _call)

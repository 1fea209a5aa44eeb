"""What a chat provider must do that takes completions as they were sent; skipped for all others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import structs

from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import FINISH_REASONS, ChatChunk, ChatCompletion
from gateway.schemas.completions.native import PROMPTS
from gateway.schemas.completions.request import decode_completions
from gateway.schemas.native_request import COMPLETIONS, AcceptedFields
from gateway.testing.call_steps import faulty, in_frames, rehearse, stalled
from gateway.testing.reply import Reply
from gateway.testing.sent_cases import LIMIT, sent_by
from gateway.testing.subject import (
    Case,
    NotConcerned,
    Subject,
    assert_sane_usage,
    assert_sound_stream,
    assert_upstream_error,
)
from gateway.testing.whole_call_cases import assert_cancelled, assert_stream_left, assert_unchanged, error_of

WORDS = ("the quillwort grows", "the sedgewren sings")


async def completion_is_sound(subject: Subject) -> None:
    """A text with one finish and possible usage, streamed and whole."""
    request = _asked(subject)
    assert_sound_stream(await subject.stream(request))
    _assert_sound(await subject.chat.chat(request, subject.target), 1)


async def choices_are_numbered_by_prompt(subject: Subject) -> None:
    """The choices of the first prompt come first, and each continues its own prompt."""
    number = 2 if "n" in _accepted(subject).fields else 1
    request = _asked(subject, prompt=list(WORDS), n=number)
    chunks = await subject.stream(request)
    assert_sound_stream(chunks)

    async def replayed() -> AsyncIterator[ChatChunk]:
        for chunk in chunks:
            yield chunk

    for which, answer in (
        ("the stream", await fold_chat(replayed())),
        ("the whole answer", await subject.chat.chat(request, subject.target)),
    ):
        _assert_sound(answer, number * len(WORDS))
        texts = [choice.message.content or "" for choice in answer.choices]
        if any("quillwort" in text for text in texts):  # a vendor that repeats words of its prompt
            first, others = texts[:number], texts[number:]
            assert all("quillwort" in text for text in first), f"{which} has the choices of prompts mixed: {texts}"
            assert all("sedgewren" in text for text in others), f"{which} has the choices of prompts mixed: {texts}"


async def completion_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = _asked(subject)
    await assert_unchanged(request, subject.stream(request), "messages")


async def completion_fields_are_sent(subject: Subject) -> None:
    """The prompt, and the output limit, for which money is held."""
    for which, call in (("the call", _whole), ("the stream", _stream)):
        sent = await sent_by(subject, call(subject, _asked(subject, max_tokens=LIMIT)))
        assert sent.says("quillwort"), f"{which} did not send the prompt"
        assert sent.counts(LIMIT), f"{which} did not send the output limit: read `max_output` of the request"
        sent = await sent_by(subject, call(subject, _asked(subject)))
        assert sent.counts(16), f"{which} did not send the limit of a request that names none"


async def cut_completion_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its end, cleanly or not, raises or leaves a choice without its finish."""
    steps = await rehearse(subject, _streamed)
    for end in ("cut", "whole"):

        def shorten(reply: Reply, end: str = end) -> Reply:
            frames = reply.frames or []
            return msgspec.structs.replace(reply, frames=frames[: len(frames) // 3], end=end)

        async with faulty(subject, steps.answer, in_frames(steps, shorten)) as fault:
            call = fold_chat(fault.subject.chat.stream_chat(_asked(subject), subject.target))
            error = await error_of(call, f"a third of a stream of a completion, end {end!r},")
        assert_upstream_error(error, subject.secrets)


async def leaving_a_completion_closes_the_upstream(subject: Subject) -> None:
    """Whoever leaves a stream leaves the upstream, which would go on generating, and charging."""
    await assert_stream_left(subject, lambda one: one.chat.stream_chat(_asked(one), one.target))


async def cancelling_a_completion_closes_the_upstream(subject: Subject) -> None:
    """The same for a cancelled task that waits for a chunk."""
    steps = await rehearse(subject, _streamed)
    async with faulty(subject, steps.answer, in_frames(steps, stalled)) as fault:
        await assert_cancelled(fault, _stream(fault.subject, _asked(subject)), frames=2)


def completion_question(**fields: Any) -> ChatRequest:
    """A completion request as the gateway reads it."""
    return decode_completions(msgspec.json.encode({"model": "public-name", "prompt": WORDS[0], **fields}))


def _accepted(subject: Subject) -> AcceptedFields:
    accepted = subject.chat.accepted_fields(COMPLETIONS, subject.target)
    if accepted is None:
        raise NotConcerned()  # it has no completions
    return accepted


def _asked(subject: Subject, **fields: Any) -> ChatRequest:
    """A request as the gateway would hand it to the provider."""
    accepted = _accepted(subject)
    if isinstance(fields.get("prompt"), list) and PROMPTS not in accepted.forms:
        raise NotConcerned("`accepted_fields` takes one prompt")
    request = completion_question(**fields)
    assert request.native is not None
    return structs.replace(request, native=request.native.accepted_by(accepted))


def _assert_sound(answer: Any, choices: int) -> None:
    assert isinstance(answer, ChatCompletion), f"chat returned {answer!r} instead of a ChatCompletion"
    numbers = [choice.index for choice in answer.choices]
    assert numbers == list(range(choices)), f"choices are numbered {numbers}, not from 0 to {choices - 1}"
    for choice in answer.choices:
        assert choice.message.content, f"choice {choice.index} has no text"
        assert choice.finish_reason in FINISH_REASONS, f"finish reason {choice.finish_reason!r} is not the wire's"
    if answer.usage is not None:
        assert_sane_usage(answer.usage)


async def _whole(subject: Subject, request: ChatRequest) -> object:
    return await subject.chat.chat(request, subject.target)


async def _stream(subject: Subject, request: ChatRequest) -> object:
    return await subject.stream(request)


async def _streamed(subject: Subject) -> object:
    return await _stream(subject, _asked(subject))


CASES: tuple[Case, ...] = (completion_is_sound, choices_are_numbered_by_prompt, completion_request_is_left_as_it_was)
UPSTREAM_CASES: tuple[Case, ...] = (
    completion_fields_are_sent,
    cut_completion_never_looks_whole,
    leaving_a_completion_closes_the_upstream,
    cancelling_a_completion_closes_the_upstream,
)

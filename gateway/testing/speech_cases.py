"""What a provider that speaks must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec

from gateway.billing.usage import possible_speech_usage
from gateway.encoders.speech import SpeechStreamEncoder
from gateway.schemas.speech import SpeechChunk, SpeechRequest, decode_speech_request
from gateway.testing import whole_call_cases
from gateway.testing.reply import Reply
from gateway.testing.subject import Case, Subject, assert_upstream_error
from gateway.testing.upstream_cases import assert_left, error_of

PROMPT_END = 1.0  # seconds that leaving a sound may take


def speech_question(subject: Subject, **fields: Any) -> SpeechRequest:
    """A request as the gateway would hand it to a provider, in a format that it can make."""
    formats = subject.speech.speech_formats
    format = "mp3" if "mp3" in formats else sorted(formats)[0]
    body = {"model": "public-name", "input": "Three herons fly", "voice": "alloy", "response_format": format, **fields}
    return decode_speech_request(msgspec.json.encode(body))


async def sound_comes_in_every_format(subject: Subject) -> None:
    """Bytes, and possible usage if any, in each format that the provider names."""
    assert subject.speech.speech_formats, "no format"
    for format in sorted(subject.speech.speech_formats):
        await _spoken(subject, speech_question(subject, response_format=format))


async def longer_text_is_no_shorter_sound(subject: Subject) -> None:
    """The whole text is said."""
    short = await _spoken(subject, speech_question(subject, input="Heron."))
    long = await _spoken(subject, speech_question(subject, input="Herons stand still for hours. " * 10))
    assert long.size >= short.size, f"{long.size} bytes for a long text, {short.size} for a word"


async def speech_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = speech_question(subject)
    before = dict(request.fields), request.input, request.model
    await _spoken(subject, request)
    assert before == (dict(request.fields), request.input, request.model), "the provider changed the request"


async def speech_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls."""
    await asyncio.gather(*(_spoken(subject, speech_question(subject, input=f"heron {n}")) for n in range(8)))


async def leaving_a_sound_early_is_prompt(subject: Subject) -> None:
    """A sound that is closed after its first bytes ends at once."""
    stream = cast("AsyncGenerator[SpeechChunk, None]", subject.speech.speak(speech_question(subject), subject.target))
    await anext(stream)
    try:
        await asyncio.wait_for(stream.aclose(), PROMPT_END)
    except TimeoutError:
        raise AssertionError(f"closing the sound took over {PROMPT_END} s") from None


async def cut_sound_never_looks_whole(subject: Subject) -> None:
    """Bytes that break off raise, for nothing in them says that they are all."""

    def cut(reply: Reply) -> Reply:
        if reply.frames is None:
            return msgspec.structs.replace(reply, cut_after=len(reply.body) // 2)
        return msgspec.structs.replace(reply, frames=reply.frames[:-1], end="cut")

    subject.fake.tamper = cut
    error = await error_of(_spoken(subject, speech_question(subject)), "half a sound")
    assert_upstream_error(error, subject.secrets)


async def leaving_a_sound_closes_the_upstream(subject: Subject) -> None:
    """Whoever leaves a sound leaves the upstream, which would go on speaking, and charging."""

    def stall(reply: Reply) -> Reply:
        frames = reply.frames or [reply.body]
        return msgspec.structs.replace(reply, frames=frames[:2], end="silence")

    subject.fake.tamper = stall
    stream = cast("AsyncGenerator[SpeechChunk, None]", subject.speech.speak(speech_question(subject), subject.target))
    await anext(stream)
    await assert_left(subject, stream.aclose)


async def _spoken(subject: Subject, request: SpeechRequest, target: Any = None) -> SpeechStreamEncoder:
    encoder = SpeechStreamEncoder(request.format)
    async for chunk in subject.speech.speak(request, target or subject.target):
        encoder.feed(chunk)
        assert chunk.usage is None or possible_speech_usage(chunk.usage), f"usage is {chunk.usage!r}"
    assert encoder.size, "there was no sound"
    return encoder


async def _call(subject: Subject, target: Any) -> object:
    return await _spoken(subject, speech_question(subject), target)


CASES: tuple[Case, ...] = (
    sound_comes_in_every_format,
    longer_text_is_no_shorter_sound,
    speech_request_is_left_as_it_was,
    speech_calls_at_once_do_not_mix,
    leaving_a_sound_early_is_prompt,
    *whole_call_cases.local_cases("speech", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = (
    *whole_call_cases.upstream_cases("speech", _call),
    cut_sound_never_looks_whole,
    leaving_a_sound_closes_the_upstream,
)

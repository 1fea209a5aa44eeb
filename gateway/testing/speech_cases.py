"""What a provider that speaks must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gateway.billing.usage import possible_usage
from gateway.encoders.speech import SpeechStreamEncoder
from gateway.schemas.speech import SpeechRequest, SpeechUsage, decode_speech_request
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, Subject


def speech_question(subject: Subject, **fields: Any) -> SpeechRequest:
    """A request as the gateway would hand it to a provider, in a format that it can make."""
    formats = subject.speech.speech_formats
    format = "mp3" if "mp3" in formats else sorted(formats)[0]
    body = {"model": "public-name", "input": "Three herons fly", "voice": "alloy", "response_format": format, **fields}
    return decode_speech_request(msgspec.json.encode(body))


async def audio_comes_in_every_format(subject: Subject) -> None:
    """Bytes, and possible usage if any, in each format that the provider names."""
    assert subject.speech.speech_formats, "no format"
    for format in sorted(subject.speech.speech_formats):
        await _spoken(subject, speech_question(subject, response_format=format))


async def longer_text_is_no_shorter_audio(subject: Subject) -> None:
    """The whole text is said."""
    short = await _spoken(subject, speech_question(subject, input="Heron."))
    long = await _spoken(subject, speech_question(subject, input="Herons stand still for hours. " * 10))
    assert long.size >= short.size, f"{long.size} bytes for a long text, {short.size} for a word"


async def speech_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = speech_question(subject)
    await whole_call_cases.assert_unchanged(request, _spoken(subject, request), "input")


async def speech_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls."""
    await asyncio.gather(*(_spoken(subject, speech_question(subject, input=f"heron {n}")) for n in range(8)))


async def leaving_audio_early_is_prompt(subject: Subject) -> None:
    """Audio that is closed after its first bytes ends at once."""
    audio = subject.speech.speak(speech_question(subject), subject.target)
    await whole_call_cases.assert_closes_promptly(audio, "audio")


async def cut_audio_never_looks_whole(subject: Subject) -> None:
    """Bytes that break off raise, for nothing in them says that they are all."""
    request = speech_question(subject)
    await whole_call_cases.assert_cut_is_an_error(subject, lambda one: _spoken(one, request), "cut")


async def leaving_audio_closes_the_upstream(subject: Subject) -> None:
    """Whoever leaves audio leaves the upstream, which would go on speaking, and charging."""
    await whole_call_cases.assert_stream_left(subject, lambda one: one.speech.speak(speech_question(one), one.target))


async def _spoken(subject: Subject, request: SpeechRequest, target: Any = None) -> SpeechStreamEncoder:
    encoder = SpeechStreamEncoder(request.format)
    async for chunk in subject.speech.speak(request, target or subject.target):
        encoder.feed(chunk)
        assert chunk.usage is None or possible_usage(chunk.usage, SpeechUsage), f"usage is {chunk.usage!r}"
    assert encoder.size, "there was no audio"
    return encoder


async def _call(subject: Subject, target: Any) -> object:
    return await _spoken(subject, speech_question(subject), target)


CASES: tuple[Case, ...] = (
    audio_comes_in_every_format,
    longer_text_is_no_shorter_audio,
    speech_request_is_left_as_it_was,
    speech_calls_at_once_do_not_mix,
    leaving_audio_early_is_prompt,
    *whole_call_cases.local_cases("speech", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = (
    *whole_call_cases.upstream_cases("speech", _call),
    cut_audio_never_looks_whole,
    leaving_audio_closes_the_upstream,
)

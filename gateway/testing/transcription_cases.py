"""What a provider that listens must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gateway.encoders.transcript_formats import validated_transcript, write_transcript
from gateway.encoders.transcripts import TranscriptStreamEncoder
from gateway.schemas.transcription import (
    Transcript,
    TranscriptionRequest,
    decode_transcription_request,
    decode_translation_request,
)
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, NotConcerned, Subject

RATE = 16_000


class RecordedSilence:
    """A WAV as the gateway would hand it to a provider; `opened` counts how often it was read."""

    filename = "silence.wav"
    media_type = "audio/wav"

    def __init__(self, seconds: float = 0.5) -> None:
        pcm = bytes(2 * int(seconds * RATE))
        self.data = struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            *(b"RIFF", 36 + len(pcm), b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16, b"data", len(pcm)),
        )
        self.data += pcm
        self.size = len(self.data)
        self.seconds: float | None = seconds
        self.opened = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its bytes, anew with each call."""
        self.opened += 1
        for start in range(0, self.size, 4096):
            yield self.data[start : start + 4096]


def transcription_question(file: RecordedSilence | None = None, **fields: str) -> TranscriptionRequest:
    """A request as the gateway would hand it to a provider."""
    parts = {"model": "public-name", **fields}
    return decode_transcription_request(list(parts.items()), file or RecordedSilence())


def translation_question(file: RecordedSilence | None = None, **fields: str) -> TranscriptionRequest:
    """The same for a translation."""
    parts = {"model": "public-name", **fields}
    return decode_translation_request(list(parts.items()), file or RecordedSilence())


async def transcript_is_sound(subject: Subject) -> None:
    """Text, times that do not run backwards, and the file read."""
    file = RecordedSilence()
    transcript = await _heard(subject, transcription_question(file))
    assert file.opened, "the file was not read"
    for span in (*(transcript.segments or ()), *(transcript.words or ())):
        assert 0 <= span.start <= span.end, f"{span!r} ends before it begins"


async def every_format_is_filled(subject: Subject) -> None:
    """The formats that the provider names can be written from what it gives."""
    assert subject.transcription.transcript_formats, "no format"
    for format in sorted(subject.transcription.transcript_formats):
        request = transcription_question(response_format=format)
        transcript = await _heard(subject, request)
        _, body = write_transcript(transcript, request)
        assert body.strip() or not transcript.text, f"{format} is empty"  # silence has no subtitles


async def transcript_stream_is_sound(subject: Subject) -> None:
    """Text first, the whole last."""
    encoder = await _streamed(subject, transcription_question(stream="true"))
    assert encoder.transcript is not None, "no whole transcript at the end"


async def translation_is_sound(subject: Subject) -> None:
    """English text, in each form of a translation that the provider names."""
    if not subject.transcription.can_translate(subject.target):
        raise NotConcerned()  # it does not translate
    for format in sorted(subject.transcription.transcript_formats - {"diarized_json"}):
        file = RecordedSilence()
        request = translation_question(file, response_format=format)
        transcript = await _heard(subject, request)
        assert file.opened, "the file was not read"
        _, body = write_transcript(transcript, request)
        assert body.strip() or not transcript.text, f"{format} is empty"


async def file_may_be_read_again(subject: Subject) -> None:
    """Another attempt may use the same request, so nothing of it is used up or changed."""
    request = transcription_question()
    before = list(request.parts), request.model
    first, second = await _heard(subject, request), await _heard(subject, request)
    assert before == (list(request.parts), request.model), "the provider changed the request"
    assert bool(first.text) == bool(second.text), "the second attempt heard something else"


async def transcription_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls."""
    await asyncio.gather(*(_heard(subject, transcription_question()) for _ in range(8)))


async def cut_transcript_stream_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its end, cleanly or not, raises."""
    request = transcription_question(stream="true")
    await whole_call_cases.assert_cut_is_an_error(subject, lambda one: _streamed(one, request), "cut", "whole")


async def translation_asks_for_another_task(subject: Subject) -> None:
    """The request for a translation is not that for a transcript: the upstream must know what it is to write."""
    if not subject.transcription.can_translate(subject.target):
        raise NotConcerned()  # it does not translate
    sent = []
    for question in (transcription_question(), translation_question()):
        first = len(subject.fake.seen)
        await _heard(subject, question)
        seen = subject.fake.seen[first:]
        # Each form has a boundary of its own, which is no difference.
        boundaries = [one.headers.get("content-type", "").partition("boundary=")[2].encode() or b"-" for one in seen]
        sent.append([(one.path, one.body.replace(edge, b"")) for one, edge in zip(seen, boundaries, strict=True)])
    assert sent[0] != sent[1], "a translation sends the same requests as a transcription: read `request.translates`"


async def _heard(subject: Subject, request: TranscriptionRequest, target: Any = None) -> Transcript:
    transcript = await subject.transcription.transcribe(request, target or subject.target)
    try:
        return validated_transcript(transcript)
    except (TypeError, msgspec.MsgspecError) as error:
        raise AssertionError(f"the transcript is none: {error}") from error


async def _streamed(subject: Subject, request: TranscriptionRequest) -> TranscriptStreamEncoder:
    encoder = TranscriptStreamEncoder(request)
    async for event in subject.transcription.stream_transcript(request, subject.target):
        encoder.feed(event)
    encoder.close()
    return encoder


async def _call(subject: Subject, target: Any) -> object:
    return await _heard(subject, transcription_question(), target)


CASES: tuple[Case, ...] = (
    transcript_is_sound,
    every_format_is_filled,
    transcript_stream_is_sound,
    translation_is_sound,
    file_may_be_read_again,
    transcription_calls_at_once_do_not_mix,
    *whole_call_cases.local_cases("transcription", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = (
    *whole_call_cases.upstream_cases("transcription", _call),
    cut_transcript_stream_never_looks_whole,
    translation_asks_for_another_task,
)

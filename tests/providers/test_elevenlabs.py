"""The `elevenlabs` provider: what it sends, and what it makes of what comes back."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from email.parser import BytesParser
from typing import Any, cast

import msgspec
import pytest

from gateway import Secret, Segment, SpeechChunk, Target, Transcript, Word
from gateway.config.settings import PluginSettings
from gateway.encoders.transcript_formats import write_transcript
from gateway.errors import (
    BadRequest,
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTruncated,
)
from gateway.plugins.loader import load_plugins
from gateway.testing import FakeUpstream, Reply, Seen, check_provider
from gateway_providers.elevenlabs import ElevenLabsProvider
from tests.providers.spoken_word import MP3, Upload, listening, speech, spoken, started

KEY = "5d1f0c77b2e94a3c8f60canary"
VOICE = "21m00Tcm4TlvDq8ikWAM"
SPEAKER = Target("eleven", "eleven_multilingual_v2", "house-voice")
LISTENER = Target("eleven", "scribe_v2", "house-ear")


def word(text: str, start: float, end: float, speaker: str | None = None, kind: str = "word") -> dict[str, Any]:
    said = {"text": text, "start": start, "end": end, "type": kind, "logprob": -0.02}
    return said | ({"speaker_id": speaker} if speaker else {})


TRANSCRIPT = {
    "language_code": "eng",
    "language_probability": 0.98,
    "text": "The boats are in. (laughter) Good.",
    "words": [
        word("The", 0.1, 0.2, "speaker_0"),
        word(" ", 0.2, 0.22, "speaker_0", "spacing"),
        word("boats", 0.22, 0.6, "speaker_0"),
        word(" ", 0.6, 0.62, None, "spacing"),
        word("are", 0.62, 0.7, "speaker_0"),
        word(" ", 0.7, 0.72, "speaker_0", "spacing"),
        word("in.", 0.72, 1.0, "speaker_0"),
        word(" ", 1.0, 1.5, "speaker_0", "spacing"),
        word("(laughter)", 1.5, 2.0, "speaker_1", "audio_event"),
        word(" ", 2.0, 2.1, "speaker_1", "spacing"),
        word("Good.", 2.1, 2.5, "speaker_1"),
    ],
    "transcription_id": "x7Kq2",
    "audio_duration_secs": 2.75,
}


def eleven(seen: Seen) -> Reply:
    """The dialect: a sound as long as its text, and one transcript."""
    if seen.path.startswith("/v1/text-to-speech/"):
        frames = [MP3] * len(seen.json["text"])
        return Reply(headers={"Content-Type": "audio/mpeg", "character-cost": "13"}, frames=frames)
    if seen.path == "/v1/speech-to-text":
        return Reply.json(TRANSCRIPT)
    return Reply.json({"detail": "Not Found"}, status=404)


def provider(fake: FakeUpstream, **options: Any) -> AbstractAsyncContextManager[ElevenLabsProvider]:
    given = {"voice_map": {"alloy": VOICE}, **options}
    return started(ElevenLabsProvider, base_url=fake.url, api_key=Secret("literal", KEY), **given)


def form_of(seen: Seen) -> dict[str, bytes]:
    """The parts of a form, read by the standard library."""
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    message = BytesParser().parsebytes(head + seen.body)
    parts = cast("list[Any]", message.get_payload())
    return {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in parts}


# Speech --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "path"),
    [
        ("mp3", "/stream?output_format=mp3_44100_128"),
        ("opus", "/stream?output_format=opus_48000_128"),
        ("pcm", "/stream?output_format=pcm_24000"),
        ("wav", "?output_format=wav_24000"),
    ],
)
async def test_each_format_has_its_path_and_name(format: str, path: str) -> None:
    async with FakeUpstream(eleven) as fake, provider(fake) as subject:
        sound = await spoken(subject, speech(response_format=format), SPEAKER)
        seen = fake.seen[0]
    assert seen.path == f"/v1/text-to-speech/{VOICE}{path}" and seen.headers["xi-api-key"] == KEY
    assert seen.json == {"text": "Good morning.", "model_id": "eleven_multilingual_v2"}
    assert sound == MP3 * 13


async def test_speed_and_own_fields_are_sent() -> None:
    own = {"voice_settings": {"stability": 0.4}, "language_code": "en", "seed": 5}
    async with FakeUpstream(eleven) as fake, provider(fake) as subject:
        await spoken(subject, speech(speed=1.2, **own), SPEAKER)
        seen = fake.seen[0].json
    assert seen["voice_settings"] == {"stability": 0.4, "speed": 1.2}
    assert (seen["language_code"], seen["seed"]) == ("en", 5)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"voice": "nova"}, "invalid_value", "voice"),
        ({"voice": {"id": "pNInz6obpgDQGcFmaJgB"}}, "invalid_value", "voice"),
        ({"speed": 0.5}, "decimal_below_min_value", "speed"),
        ({"speed": 1.3}, "decimal_above_max_value", "speed"),
        ({"speed": 1.1, "voice_settings": []}, "invalid_value", "voice_settings"),
    ],
)
async def test_unsupported_request_is_refused_before_anything_is_sent(
    fields: dict[str, Any], code: str, param: str
) -> None:
    async with FakeUpstream(eleven) as fake, provider(fake) as subject:
        with pytest.raises(BadRequest) as caught:
            await spoken(subject, speech(**fields), SPEAKER)
        assert not fake.seen
    assert (caught.value.code, caught.value.param) == (code, param)


async def test_voice_ids_are_accepted_if_the_option_allows_them() -> None:
    async with FakeUpstream(eleven) as fake, provider(fake, voice_ids=True) as subject:
        await spoken(subject, speech(voice={"id": "pNInz6obpgDQGcFmaJgB"}), SPEAKER)
        assert "/pNInz6obpgDQGcFmaJgB/" in fake.seen[0].path
        with pytest.raises(BadRequest):
            await spoken(subject, speech(voice="../history?x=11111111"), SPEAKER)


def test_unsupported_formats_are_not_declared() -> None:
    assert ElevenLabsProvider.speech_formats == {"mp3", "opus", "wav", "pcm"}


async def test_audio_is_forwarded_as_it_arrives() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply(headers={"Content-Type": "audio/mpeg"}, frames=[MP3], end="silence"))
        stream = cast("AsyncGenerator[SpeechChunk, None]", subject.speak(speech(), SPEAKER))
        assert (await anext(stream)).audio == MP3
        await stream.aclose()
        assert (await fake.wait_ended()).outcome == "left"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(headers={"Content-Type": "audio/mpeg"}, frames=[MP3], end="cut"), UpstreamTruncated),
        (Reply(headers={"Content-Type": "audio/mpeg"}, body=b""), UpstreamInvalidResponse),
        (Reply(headers={"Content-Type": "text/html"}, body=b"<html>"), UpstreamInvalidResponse),
        (Reply.json({"audio_base64": "AAAA"}), UpstreamInvalidResponse),
    ],
)
async def test_incomplete_audio_raises_an_error(reply: Reply, kind: type[GatewayError]) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(reply)
        with pytest.raises(kind):
            await spoken(subject, speech(), SPEAKER)


def refusal(status: str, message: str = "No.") -> dict[str, Any]:
    return {"detail": {"status": status, "message": message}}


INVALID = {"detail": [{"loc": ["body", "seed"], "msg": "Input should be a valid integer", "type": "int_parsing"}]}


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (401, refusal("invalid_api_key", f"Invalid API key {KEY}"), UpstreamAuthError),
        (401, refusal("quota_exceeded", "This request exceeds your quota of 10000."), UpstreamOverloaded),
        (422, INVALID, UpstreamRejected),
        (400, refusal("max_character_limit_exceeded", f"Too long for {KEY}."), UpstreamRejected),
        (429, refusal("too_many_concurrent_requests"), UpstreamRateLimited),
        (404, refusal("voice_not_found"), UpstreamError),
        (500, {"detail": "Internal"}, UpstreamError),
    ],
)
async def test_errors_are_typed_and_show_no_key(status: int, document: Any, kind: type[GatewayError]) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(document, status=status))
        with pytest.raises(kind) as caught:
            await spoken(subject, speech(), SPEAKER)
    assert KEY not in f"{caught.value} {caught.value.detail} {caught.value.body().decode()}"
    if document is INVALID:
        assert caught.value.message == "Input should be a valid integer"


# Transcription -------------------------------------------------------------------------------------------------------


async def heard(**fields: str) -> tuple[Transcript, Seen]:
    async with FakeUpstream(eleven) as fake, provider(fake) as subject:
        return await subject.transcribe(listening(Upload(), **fields), LISTENER), fake.seen[0]


async def test_form_requests_the_details_that_the_format_needs() -> None:
    _, seen = await heard(language="en", temperature="0.5", num_speakers="2", seed="7")
    form = form_of(seen)
    assert form.pop("file") == b"\x55" * 1000
    assert form == {
        "model_id": b"scribe_v2",
        "timestamps_granularity": b"none",
        "diarize": b"false",
        "tag_audio_events": b"false",
        "language_code": b"en",
        "temperature": b"0.5",
        "num_speakers": b"2",
        "seed": b"7",
    }
    assert seen.headers["content-length"] == str(len(seen.body)) and b'filename="morning.mp3"' in seen.body
    for format, times, speakers in (("srt", b"word", b"false"), ("diarized_json", b"word", b"true")):
        form = form_of((await heard(response_format=format, tag_audio_events="true"))[1])
        assert (form["timestamps_granularity"], form["diarize"]) == (times, speakers)
        assert form["tag_audio_events"] == b"true"


async def test_words_exclude_spacing_and_audio_events() -> None:
    transcript, _ = await heard(response_format="verbose_json")
    assert transcript.words == [
        Word("The", 0.1, 0.2),
        Word("boats", 0.22, 0.6),
        Word("are", 0.62, 0.7),
        Word("in.", 0.72, 1.0),
        Word("Good.", 2.1, 2.5),
    ]
    assert (transcript.language, transcript.duration, transcript.segments) == ("eng", 2.75, None)
    assert transcript.usage is not None and transcript.usage.seconds == 2.75


async def test_speaker_changes_start_new_segments() -> None:
    transcript, _ = await heard(response_format="diarized_json")
    assert transcript.segments == [
        Segment(0.1, 1.0, "The boats are in.", "speaker_0"),
        Segment(2.1, 2.5, "Good.", "speaker_1"),
    ]
    request = listening(Upload(), response_format="diarized_json")
    written = msgspec.json.decode(write_transcript(transcript, request)[1])
    assert [segment["speaker"] for segment in written["segments"]] == ["A", "B"]


@pytest.mark.parametrize("document", [{}, [], None, {"text": 5}, {"transcripts": [TRANSCRIPT]}])
async def test_document_without_a_transcript_is_invalid(document: Any) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(document))
        with pytest.raises(UpstreamInvalidResponse):
            await subject.transcribe(listening(Upload()), LISTENER)


async def test_upload_is_never_completely_in_memory() -> None:
    class Discarding(FakeUpstream):
        """Reads an upload without keeping it."""

        async def _handle(self, request: Any) -> Any:
            async for _ in request.content.iter_any():
                pass
            from aiohttp import web

            return web.json_response(TRANSCRIPT)

    file = Upload(48 * 1024 * 1024)
    async with Discarding() as fake, provider(fake) as subject:
        tracemalloc.start()
        try:
            await subject.transcribe(listening(file), LISTENER)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert file.pieces == 768 and peak < 8 * 1024 * 1024


# As a plugin ---------------------------------------------------------------------------------------------------------


def test_elevenlabs_conforms() -> None:
    options = {"base_url": "{upstream}", "api_key": Secret("literal", KEY), "voice_map": {"alloy": VOICE}}
    passed = check_provider(ElevenLabsProvider, options=options, upstream=FakeUpstream(eleven))
    assert {"cut_audio_never_looks_whole", "every_format_is_filled", "transcription_silence_times_out"} <= set(passed)


def test_elevenlabs_is_built_in() -> None:
    assert load_plugins(PluginSettings()).providers["elevenlabs"] is ElevenLabsProvider

"""The `deepgram` provider: what it sends, and what it makes of what comes back."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from aiohttp import web

from gateway import Secret, Segment, SpeechChunk, Target, Transcript, Word
from gateway.config.settings import PluginSettings
from gateway.encoders.transcript_formats import write_transcript
from gateway.errors import (
    BadRequest,
    GatewayError,
    UpstreamAuthError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTruncated,
)
from gateway.plugins.loader import load_plugins
from gateway.testing import FakeUpstream, Reply, Seen, check_provider
from gateway_providers.deepgram import DeepgramProvider
from tests.providers.spoken_word import MP3, Upload, listening, speech, spoken, started

KEY = "dg-canary-2f6ac0e19b"
SPEAKER = Target("deepgram", "aura-2-thalia-en", "house-voice")
LISTENER = Target("deepgram", "nova-3", "house-ear")


def word(text: str, start: float, end: float, speaker: int | None = None) -> dict[str, Any]:
    said = {"word": text.strip(".?").lower(), "start": start, "end": end, "confidence": 0.99}
    told = {} if speaker is None else {"speaker": speaker, "speaker_confidence": 0.8}
    return {**said, **told, "punctuated_word": text}


def transcript(*, speakers: bool = False) -> dict[str, Any]:
    who = (0, 1) if speakers else (None, None)
    words = [
        word("The", 0.1, 0.2, who[0]),
        word("boats", 0.22, 0.6, who[0]),
        word("are", 0.62, 0.7, who[0]),
        word("in.", 0.72, 1.0, who[0]),
        word("Good.", 2.1, 2.5, who[1]),
    ]
    spans = ((words[:4], "The boats are in."), (words[4:], "Good."))
    utterances = [
        {
            "start": said[0]["start"],
            "end": said[-1]["end"],
            "confidence": 0.99,
            "channel": 0,
            "transcript": text,
            "words": said,
            **({"speaker": said[0]["speaker"]} if speakers else {}),
            "id": f"4bbb7c1e-{number}",
        }
        for number, (said, text) in enumerate(spans)
    ]
    best = {"transcript": "The boats are in. Good.", "confidence": 0.99, "words": words}
    return {
        "metadata": {
            "transaction_key": "deprecated",
            "request_id": "a847f427-4ad5-4d67-9b95-db801e58251c",
            "sha256": "154e291ecfa8be6ab8343560bcc109008fa7853eb5372533e8efdefc9b504c33",
            "created": "2026-11-21T16:00:00.000Z",
            "duration": 2.75,
            "channels": 1,
            "models": ["30089e05-99d1-4376-b32e-c263170674af"],
            "model_info": {"30089e05-99d1-4376-b32e-c263170674af": {"name": "general-nova-3", "arch": "nova-3"}},
        },
        "results": {
            "channels": [{"alternatives": [best], "detected_language": "en", "language_confidence": 0.99}],
            "utterances": utterances,
        },
    }


def refusal(code: str, message: str = "No.") -> dict[str, Any]:
    return {"err_code": code, "err_msg": message, "request_id": "2d1c9f5e-7f0c"}


def deepgram(seen: Seen) -> Reply:
    """The dialect: a sound as long as its text, and one transcript."""
    address = urlsplit(seen.path)
    if address.path == "/v1/speak":
        return Reply(headers={"Content-Type": "audio/mpeg"}, frames=[MP3] * len(seen.json["text"]))
    if address.path == "/v1/listen":
        return Reply.json(transcript(speakers="diarize=true" in address.query))
    return Reply.json(refusal("NOT_FOUND"), status=404)


def provider(fake: FakeUpstream, **options: Any) -> AbstractAsyncContextManager[DeepgramProvider]:
    return started(DeepgramProvider, base_url=fake.url, api_key=Secret("literal", KEY), **options)


def query_of(seen: Seen) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(seen.path).query)


# Speech --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "asked"),
    [
        ("mp3", {"encoding": "mp3"}),
        ("opus", {"encoding": "opus", "container": "ogg"}),
        ("aac", {"encoding": "aac"}),
        ("flac", {"encoding": "flac"}),
        ("wav", {"encoding": "linear16", "container": "wav", "sample_rate": "24000"}),
        ("pcm", {"encoding": "linear16", "container": "none", "sample_rate": "24000"}),
    ],
)
async def test_each_format_maps_to_an_encoding_and_a_container(format: str, asked: dict[str, str]) -> None:
    async with FakeUpstream(deepgram) as fake, provider(fake) as subject:
        sound = await spoken(subject, speech(response_format=format), SPEAKER)
        seen = fake.seen[0]
    assert dict(query_of(seen)) == {"model": "aura-2-thalia-en", **asked}
    assert seen.json == {"text": "Good morning."} and seen.headers["authorization"] == f"Token {KEY}"
    assert sound == MP3 * 13


async def test_speed_is_a_query_parameter() -> None:
    async with FakeUpstream(deepgram) as fake, provider(fake) as subject:
        await spoken(subject, speech(speed=1.25), SPEAKER)
        await spoken(subject, speech(speed=1.0), SPEAKER)
    assert dict(query_of(fake.seen[0]))["speed"] == "1.25" and "speed" not in dict(query_of(fake.seen[1]))


async def test_voice_table_maps_voices_to_models() -> None:
    async with FakeUpstream(deepgram) as fake, provider(fake, voice_map={"onyx": "aura-2-orion-en"}) as subject:
        await spoken(subject, speech(voice="onyx"), SPEAKER)
        assert ("model", "aura-2-orion-en") in query_of(fake.seen[0])
        with pytest.raises(BadRequest) as caught:
            await spoken(subject, speech(voice="nova"), SPEAKER)
        assert len(fake.seen) == 1
    assert (caught.value.code, caught.value.param) == ("invalid_value", "voice")


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
        (Reply.json({"request_id": "callback"}), UpstreamInvalidResponse),
    ],
)
async def test_incomplete_audio_raises_an_error(reply: Reply, kind: type[GatewayError]) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(reply)
        with pytest.raises(kind):
            await spoken(subject, speech(), SPEAKER)


# Errors --------------------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[int, dict[str, Any], type[GatewayError]]] = [
    (
        400,
        refusal("Bad Request", "Bad Request: failed to process audio: corrupt or unsupported data"),
        UpstreamRejected,
    ),
    (401, refusal("INVALID_AUTH", f"Invalid credentials: {KEY}."), UpstreamAuthError),
    (402, refusal("ASR_PAYMENT_REQUIRED", "Project does not have enough credits"), UpstreamOverloaded),
    (403, refusal("INSUFFICIENT_PERMISSIONS", "Project does not have access to the model."), UpstreamAuthError),
    (429, refusal("TOO_MANY_REQUESTS", "Too many requests. Please try again later"), UpstreamRateLimited),
]


@pytest.mark.parametrize(("status", "document", "kind"), REFUSALS)
async def test_errors_are_typed_and_show_no_key(status: int, document: Any, kind: type[GatewayError]) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(document, status=status), Reply.json(document, status=status))
        with pytest.raises(kind) as caught:
            await subject.transcribe(listening(Upload()), LISTENER)
        with pytest.raises(kind):
            await spoken(subject, speech(), SPEAKER)
    assert KEY not in f"{caught.value} {caught.value.detail} {caught.value.body().decode()}"
    if status == 400:
        assert caught.value.message == document["err_msg"]
    else:
        assert document["err_code"] in (caught.value.detail or "")


# Transcription -------------------------------------------------------------------------------------------------------


async def heard(file: Any = None, *, target: Target = LISTENER, **fields: str) -> tuple[Transcript, Seen]:
    async with FakeUpstream(deepgram) as fake, provider(fake) as subject:
        return await subject.transcribe(listening(file or Upload(), **fields), target), fake.seen[0]


async def test_audio_is_the_body_and_options_are_query_parameters() -> None:
    _, seen = await heard(language="de", keywords='["Brest","Ouessant"]', numerals="true")
    assert query_of(seen) == [
        ("model", "nova-3"),
        ("smart_format", "true"),
        ("utterances", "true"),
        ("language", "de"),
        ("keyterm", "Brest"),
        ("keyterm", "Ouessant"),
        ("numerals", "true"),
    ]
    assert seen.body == b"\x55" * 1000
    assert (seen.headers["content-type"], seen.headers["content-length"]) == ("audio/mpeg", "1000")


async def test_language_is_detected_and_older_models_use_keywords() -> None:
    _, seen = await heard(target=Target("deepgram", "nova-2-general"), keywords="Brest")
    assert ("detect_language", "true") in query_of(seen) and ("keywords", "Brest") in query_of(seen)
    async with FakeUpstream(deepgram) as fake, provider(fake, detect_language=False) as subject:
        await subject.transcribe(listening(Upload()), LISTENER)
        assert "detect_language" not in dict(query_of(fake.seen[0]))


async def test_media_type_of_a_caller_cannot_add_a_header() -> None:
    _, seen = await heard(Upload(media_type="audio/mpeg\r\nX-Evil: 1"))
    assert seen.headers["content-type"] == "application/octet-stream" and "x-evil" not in seen.headers


async def test_utterances_become_segments() -> None:
    found, seen = await heard(response_format="verbose_json")
    assert ("diarize", "true") not in query_of(seen)
    assert found.segments == [Segment(0.1, 1.0, "The boats are in."), Segment(2.1, 2.5, "Good.")]
    assert found.words is not None and found.words[3:] == [Word("in.", 0.72, 1.0), Word("Good.", 2.1, 2.5)]
    assert (found.text, found.language, found.duration) == ("The boats are in. Good.", "en", 2.75)
    assert found.usage is not None and found.usage.seconds == 2.75


async def test_speakers_are_distinguished_if_requested() -> None:
    found, seen = await heard(response_format="diarized_json")
    assert ("diarize", "true") in query_of(seen)
    written = msgspec.json.decode(write_transcript(found, listening(Upload(), response_format="diarized_json"))[1])
    assert [(one["speaker"], one["text"]) for one in written["segments"]] == [
        ("A", "The boats are in."),
        ("B", "Good."),
    ]


async def test_silence_is_an_empty_transcript() -> None:
    silent = transcript()
    silent["results"] = {"channels": [{"alternatives": [{"transcript": "", "confidence": 0.0, "words": []}]}]}
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(silent))
        found = await subject.transcribe(listening(Upload()), LISTENER)
    assert (found.text, found.segments, found.words) == ("", None, None)


@pytest.mark.parametrize(
    "document",
    [{}, [], None, {"request_id": "callback"}, {"results": {"channels": []}}, {"results": {"channels": [{}]}}],
)
async def test_document_without_a_transcript_is_invalid(document: Any) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(document))
        with pytest.raises(UpstreamInvalidResponse):
            await subject.transcribe(listening(Upload()), LISTENER)


async def test_upload_is_never_completely_in_memory() -> None:
    class Discarding(FakeUpstream):
        """Reads an upload without keeping it."""

        async def _handle(self, request: Any) -> web.StreamResponse:
            async for _ in request.content.iter_any():
                pass
            return web.json_response(transcript())

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


def test_deepgram_conforms() -> None:
    options = {"base_url": "{upstream}", "api_key": Secret("literal", KEY)}
    passed = check_provider(DeepgramProvider, options=options, upstream=FakeUpstream(deepgram))
    assert {"cut_audio_never_looks_whole", "every_format_is_filled", "transcription_silence_times_out"} <= set(passed)


def test_deepgram_is_built_in() -> None:
    assert load_plugins(PluginSettings()).providers["deepgram"] is DeepgramProvider

"""The official Python SDK speaks and listens, unmodified: bytes, events, every form of a transcript."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAI

from gateway.testing import Reply, RunningGateway
from gateway.testing.openai_dialect import AUDIO

from .scripted import ScriptedUpstream

pytestmark = pytest.mark.clients

VERSE: dict[str, Any] = {"model": "voice", "voice": "alloy", "input": "Three herons stand in the reeds."}


@pytest.fixture
def client(served: RunningGateway) -> Iterator[OpenAI]:
    """A client as the README makes it."""
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client


def recording(seconds: float = 2.0) -> tuple[str, bytes]:
    """A file as the SDK takes one."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * int(seconds * 16_000)))
    return "herons.wav", buffer.getvalue()


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_speech_is_returned_in_every_format(client: OpenAI, scripted: ScriptedUpstream, format: Any) -> None:
    answer = client.audio.speech.create(**VERSE, response_format=format)
    assert answer.content == AUDIO[format]
    assert scripted.seen[0].headers["accept"] == "*/*"


def test_speech_streams_to_a_file(client: OpenAI, tmp_path: Path) -> None:
    with client.audio.speech.with_streaming_response.create(**VERSE) as answer:
        answer.stream_to_file(tmp_path / "verse.mp3")
    assert (tmp_path / "verse.mp3").read_bytes() == AUDIO["mp3"]


def test_speech_is_returned_as_events(client: OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        **VERSE, response_format="pcm", stream_format="sse"
    ) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert b"".join(b64decode(event["audio"]) for event in events[:-1]) == AUDIO["pcm"]
    assert events[-1]["usage"]["total_tokens"] == 56


def test_broken_speech_raises(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply(headers={"Content-Type": "audio/mpeg"}, frames=[AUDIO["mp3"]], end="cut"))
    with pytest.raises(openai.APIConnectionError):
        client.audio.speech.create(**VERSE)


def test_unknown_voice_is_a_bad_request(client: OpenAI, scripted: ScriptedUpstream) -> None:
    error = {"message": "no such voice", "type": "invalid_request_error", "param": "voice", "code": None}
    scripted.enqueue(Reply.json({"error": error}, status=400))
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="voice", voice="zork", input="x")
    assert (caught.value.code, caught.value.param) == ("invalid_value", "voice")


def test_transcripts_are_returned_in_every_format(client: OpenAI) -> None:
    def write(format: Any, **options: Any) -> Any:
        return client.audio.transcriptions.create(model="scribe", file=recording(), response_format=format, **options)

    plain = write("json")
    assert (plain.text, plain.usage.type, plain.usage.seconds) == ("I heard 64044 bytes", "duration", 3.0)
    assert write("text") == "I heard 64044 bytes\n"
    assert write("srt").startswith("1\n00:00:00,000 --> 00:00:01,500\nI heard\n")
    assert write("vtt").startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nI heard\n")
    verbose = write("verbose_json", timestamp_granularities=["segment", "word"])
    assert (verbose.duration, verbose.language, len(verbose.segments)) == (3.0, "english", 2)
    diarized = write("diarized_json")
    assert [segment.speaker for segment in diarized.segments] == ["A", "B"]


def test_transcript_streams(client: OpenAI) -> None:
    stream = client.audio.transcriptions.create(model="scribe", file=recording(), stream=True)
    *deltas, done = list(stream)
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert "".join(event.delta for event in deltas).strip() == done.text == "I heard 64044 bytes"


def test_every_option_that_the_sdk_knows_arrives(client: OpenAI, scripted: ScriptedUpstream) -> None:
    client.audio.transcriptions.create(
        model="scribe",
        file=recording(),
        language="en",
        prompt="herons",
        temperature=0.2,
        include=["logprobs"],
        chunking_strategy={"type": "server_vad", "threshold": 0.4, "silence_duration_ms": 300},
        known_speaker_names=["Ada", "Bob"],
        known_speaker_references=["data:audio/wav;base64,AAAA", "data:audio/wav;base64,BBBB"],
    )
    body = scripted.seen[0].body
    for name, value in (
        ("language", "en"), ("prompt", "herons"), ("temperature", "0.2"), ("include[]", "logprobs"),
        ("chunking_strategy[threshold]", "0.4"), ("chunking_strategy[silence_duration_ms]", "300"),
        ("known_speaker_names[]", "Bob"), ("known_speaker_references[]", "data:audio/wav;base64,BBBB"),
    ):  # fmt: skip
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in body, name


def test_broken_transcript_stream_raises(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.stream([{"type": "transcript.text.delta", "delta": "I heard"}], done=False))
    with pytest.raises(openai.APIError) as caught:
        list(client.audio.transcriptions.create(model="scribe", file=recording(), stream=True))
    assert caught.value.code == "upstream_stream_truncated"


def test_file_that_is_not_audio_is_a_bad_request(client: OpenAI, scripted: ScriptedUpstream) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.transcriptions.create(model="scribe", file=("a.wav", b"dear diary"))
    assert (caught.value.code, caught.value.param) == ("invalid_value", "file")
    assert scripted.seen == []


def test_async_client_synthesizes_and_transcribes(served: RunningGateway) -> None:
    async def both() -> tuple[bytes, str]:
        async with AsyncOpenAI(
            base_url=served.base_url, api_key=served.api_key, max_retries=0, http_client=DefaultAsyncHttpxClient()
        ) as client:
            spoken = await client.audio.speech.create(**VERSE)
            heard = await client.audio.transcriptions.create(model="scribe", file=recording())
            return spoken.content, heard.text

    assert asyncio.run(both()) == (AUDIO["mp3"], "I heard 64044 bytes")


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # OpenAI's newer models do not translate
def test_translation_is_english_in_each_format(client: OpenAI, scripted: ScriptedUpstream) -> None:
    plain = client.audio.translations.create(model="scribe", file=recording(), prompt="Herons.", temperature=0.5)
    assert plain.text == "I heard 64044 bytes"
    verbose = client.audio.translations.create(model="scribe", file=recording(), response_format="verbose_json")
    assert (verbose.language, verbose.duration) == ("english", 3.0)
    assert [segment.text for segment in verbose.segments or ()] == ["I heard", "64044 bytes"]
    assert client.audio.translations.create(model="scribe", file=recording(), response_format="srt").startswith("1\n")
    assert {seen.path for seen in scripted.seen} == {"/v1/audio/translations"}
    assert b'name="prompt"\r\n\r\nHerons.\r\n' in scripted.seen[0].body


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")
def test_async_client_translates(served: RunningGateway) -> None:
    async def translated() -> str:
        async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
            return (await client.audio.translations.create(model="scribe", file=recording())).text

    assert asyncio.run(translated()) == "I heard 64044 bytes"

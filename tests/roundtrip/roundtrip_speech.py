"""Text to speech to text through the gateway's own endpoints, by engines that are installed as packages.

`tox -e plugins` runs it. The recogniser hears this sentence in this voice without a fault, in every format and each
time it was tried; most others it does not.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any, Literal

import pytest
from openai import BadRequestError, OpenAI

from gateway.testing import RunningGateway

SENTENCE = "The president of the United States."
HEARD = "the president of the united states"
VOICE = "en-us+klatt4"

Format = Literal["mp3", "opus", "flac", "wav"]
NAMES: dict[Format, str] = {"mp3": "said.mp3", "opus": "said.ogg", "flac": "said.flac", "wav": "said.wav"}


def said(client: OpenAI, format: Format = "mp3", text: str = SENTENCE) -> bytes:
    return client.audio.speech.create(model="local-tts", voice=VOICE, input=text, response_format=format).content


def receipt(served: RunningGateway, request_id: str) -> Any:
    """What a call came to; it is settled a moment after its answer, so ask again until it is there."""
    request = urllib.request.Request(
        f"{served.base_url}/usage/{request_id}", headers={"Authorization": f"Bearer {served.api_key}"}
    )
    for _ in range(200):
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            assert error.code == 404
    raise AssertionError("the call was not settled")


@pytest.mark.parametrize("format", NAMES)
def test_synthesized_text_is_transcribed_correctly(client: OpenAI, format: Format) -> None:
    sound = (NAMES[format], said(client, format))
    assert client.audio.transcriptions.create(model="local-stt", file=sound).text == HEARD


def test_voice_and_format_of_the_sdk_examples_give_audio(client: OpenAI) -> None:
    sound = client.audio.speech.create(model="local-tts", voice="alloy", input=SENTENCE).content
    transcript = client.audio.transcriptions.create(
        model="local-stt", file=("said.mp3", sound), response_format="verbose_json"
    )
    assert 1.5 < transcript.duration < 4
    assert transcript.text


def test_audio_arrives_in_pieces(client: OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="local-tts", voice="en-gb", input=f"{SENTENCE} " * 50, response_format="pcm"
    ) as response:
        assert response.headers["content-type"] == "audio/pcm"
        pieces = list(response.iter_bytes())
    assert len(pieces) > 10
    assert sum(map(len, pieces)) > 48_000 * 60


def test_audio_arrives_as_events(client: OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="local-tts", voice=VOICE, input=SENTENCE, response_format="wav", stream_format="sse"
    ) as response:
        events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]
    *deltas, done = events
    sound = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert done["type"] == "speech.audio.done"
    assert client.audio.transcriptions.create(model="local-stt", file=("said.wav", sound)).text == HEARD


def test_times_and_subtitles_are_returned(client: OpenAI) -> None:
    sound = ("said.wav", said(client, "wav"))
    transcript = client.audio.transcriptions.create(
        model="local-stt", file=sound, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert transcript.language == "english"
    assert [word.word for word in transcript.words or ()] == HEARD.split()
    (segment,) = transcript.segments or []
    assert segment.text == HEARD
    assert 0 <= segment.start < 0.5 < 1.5 < segment.end <= transcript.duration
    subtitles = client.audio.transcriptions.create(model="local-stt", file=sound, response_format="srt")
    assert subtitles.startswith("1\n00:00:00,")
    assert HEARD in subtitles
    assert HEARD in client.audio.transcriptions.create(model="local-stt", file=sound, response_format="vtt")


def test_transcript_arrives_in_pieces_during_transcription(client: OpenAI) -> None:
    events = list(
        client.audio.transcriptions.create(model="local-stt", file=("said.flac", said(client, "flac")), stream=True)
    )
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == HEARD
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == HEARD


def test_characters_and_seconds_are_charged(client: OpenAI, served: RunningGateway) -> None:
    spoken = client.audio.speech.with_raw_response.create(
        model="local-tts", voice=VOICE, input=SENTENCE, response_format="wav"
    )
    charged = receipt(served, spoken.headers["x-request-id"])
    assert charged["usage"]["characters"] == len(SENTENCE)
    assert float(charged["cost"]) == pytest.approx(len(SENTENCE) * 15 / 1_000_000)
    seconds = (len(spoken.content) - 44) / 48_000
    heard = client.audio.transcriptions.with_raw_response.create(model="local-stt", file=("said.wav", spoken.content))
    charged = receipt(served, heard.headers["x-request-id"])
    assert charged["usage"]["audio_seconds_in"] == pytest.approx(seconds, abs=0.01)
    assert float(charged["cost"]) == pytest.approx(seconds * 0.0001, abs=0.00001)
    assert not charged["estimated"]


def test_unsupported_request_to_an_engine_is_a_caller_error(client: OpenAI) -> None:
    sound = ("said.wav", said(client, "wav"))
    speech, transcriptions = client.audio.speech.create, client.audio.transcriptions.create
    mistakes = {
        "voice": lambda: speech(model="local-tts", voice="nobody", input="hello"),
        "speed": lambda: speech(model="local-tts", voice="alloy", input="hello", speed=0.25),
        "response_format": lambda: speech(model="local-tts", voice="alloy", input="hello", response_format="aac"),
        "language": lambda: transcriptions(model="local-stt", file=sound, language="de"),
        "file": lambda: transcriptions(model="local-stt", file=("said.wav", b"no sound at all")),
    }
    for param, mistake in mistakes.items():
        with pytest.raises(BadRequestError) as caught:
            mistake()
        assert caught.value.param == param
    assert client.audio.transcriptions.create(model="local-stt", file=sound).text == HEARD

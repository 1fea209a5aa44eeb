"""Deepgram's own SDK reads the fixtures, and asks the same fake server, where its requests are compared with ours."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.types import ErrorResponseLegacyError, ListenV1Response

from gateway.testing import FakeUpstream
from tests.providers.spoken_word import Upload, listening, speech, spoken
from tests.providers.test_deepgram import KEY, LISTENER, REFUSALS, SPEAKER, deepgram, provider, query_of, transcript
from tests.providers.vendor_models import faults, unknown

# The SDK takes a second to import, and imports what websockets has given up.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")]


@contextlib.asynccontextmanager
async def sdk(fake: FakeUpstream) -> AsyncIterator[AsyncDeepgramClient]:
    place = DeepgramClientEnvironment(base=fake.url, production=fake.url, agent=fake.url, agent_rest=fake.url)
    async with httpx.AsyncClient() as client:
        yield AsyncDeepgramClient(api_key=KEY, environment=place, httpx_client=client)


def test_fixtures_have_only_fields_that_the_sdk_knows() -> None:
    extra = unknown(ListenV1Response.model_validate(transcript(speakers=True)))
    assert {name.rpartition(".")[2] for name in extra} <= {"punctuated_word", "language_confidence"}, extra
    for _, document, _ in REFUSALS:
        assert faults(document, ErrorResponseLegacyError) == []


async def test_our_speech_request_equals_that_of_the_sdk() -> None:
    async with FakeUpstream(deepgram) as fake, provider(fake) as subject, sdk(fake) as client:
        sound = await spoken(subject, speech(response_format="pcm", speed=1.1), SPEAKER)
        asked: dict[str, Any] = {"encoding": "linear16", "container": "none", "sample_rate": 24000, "speed": 1.1}
        pieces: Any = client.speak.v1.audio.generate(text="Good morning.", model="aura-2-thalia-en", **asked)
        theirs = b"".join([piece async for piece in pieces])
    ours, sdks = fake.seen
    assert theirs == sound and sdks.json == ours.json
    assert sorted(query_of(sdks)) == sorted(query_of(ours))
    assert sdks.headers["authorization"] == ours.headers["authorization"]


async def test_our_transcription_request_equals_that_of_the_sdk() -> None:
    async with FakeUpstream(deepgram) as fake, provider(fake) as subject, sdk(fake) as client:
        file = Upload()
        found = await subject.transcribe(listening(file, language="en", response_format="diarized_json"), LISTENER)
        answer: Any = await client.listen.v1.media.transcribe_file(
            request=b"\x55" * 1000, model="nova-3", smart_format=True, utterances=True, diarize=True, language="en"
        )
    ours, sdks = fake.seen
    assert sorted(query_of(sdks)) == sorted(query_of(ours)) and sdks.body == ours.body
    assert answer.results.channels[0].alternatives[0].transcript == found.text
    assert [said.transcript for said in answer.results.utterances] == [said.text for said in found.segments or ()]

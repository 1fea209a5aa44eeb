"""Speech and transcripts of OpenAI-compatible servers: what is sent, and every form in which an answer may come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from gateway import SpeechChunk, SpeechUsage, Target, Transcript, TranscriptEvent, TranscriptUsage, Upstream
from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamOverloaded, UpstreamTruncated
from gateway.schemas.speech import SpeechRequest
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import read_form
from gateway.testing.transcription_cases import RecordedSilence, transcription_question
from gateway_providers.openai import OpenAIProvider

TARGET = Target("up", "upstream-model")


@pytest.fixture
def fake(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """The server."""
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def link(io_loop: IOLoop) -> Iterator[Upstream]:
    """The way there."""
    link = Upstream()
    yield link
    io_loop.run_sync(link.close)


@pytest.fixture
def provider(io_loop: IOLoop, fake: FakeUpstream, link: Upstream) -> OpenAIProvider:
    """A provider of that server, which spells a field its own way."""
    options = OpenAIProvider.Options(base_url=fake.base_url, rename={"keywords": "hot_words", "speed": "rate"})
    provider = OpenAIProvider(options, link)
    io_loop.run_sync(provider.start)
    return provider


def stream(*events: Any, done: bool = False) -> Reply:
    return Reply.stream(list(events), done=done)


async def spoken(provider: OpenAIProvider, **fields: Any) -> list[SpeechChunk]:
    request = SpeechRequest(model="m", input="x", voice="alloy", **fields)
    async with aclosing(provider.speak(request, TARGET)) as chunks:  # type: ignore[type-var]
        return [chunk async for chunk in chunks]


async def heard(provider: OpenAIProvider, **fields: Any) -> Transcript:
    return await provider.transcribe(transcription_question(**fields), TARGET)


async def streamed(provider: OpenAIProvider, **fields: Any) -> list[TranscriptEvent]:
    events: AsyncIterator[TranscriptEvent] = provider.stream_transcript(
        transcription_question(stream="true", **fields), TARGET
    )
    return [event async for event in events]


# Speech --------------------------------------------------------------------------------------------------------------


async def test_audio_events_are_read_up_to_their_final_event(provider: OpenAIProvider, fake: FakeUpstream) -> None:
    delta = {"type": "speech.audio.delta", "audio": "AAEC"}
    done = {"type": "speech.audio.done", "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}
    for end in (False, True):  # [DONE] behind it changes nothing
        fake.enqueue(stream({"type": "speech.audio.news"}, delta, done, done=end))
        assert await spoken(provider) == [SpeechChunk(b"\0\1\2"), SpeechChunk(usage=SpeechUsage(1, 2, 3))]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (stream({"type": "speech.audio.delta", "audio": "?"}), UpstreamInvalidResponse),
        (stream(b"data: nonsense\n\n"), UpstreamInvalidResponse),
        (stream({"type": "speech.audio.delta", "audio": "AAAA"}), UpstreamTruncated),
        (stream({"type": "error", "error": {"message": "overloaded"}}), UpstreamOverloaded),
        (stream(b'event: error\ndata: {"message": "overloaded"}\n\n'), UpstreamOverloaded),
        (Reply.json({"error": "overloaded"}), UpstreamOverloaded),
        (Reply.json({"text": "hm"}), UpstreamInvalidResponse),
        (Reply(headers={"Content-Type": "text/html"}, body=b"<p>"), UpstreamInvalidResponse),
    ],
)
async def test_invalid_sound_is_a_typed_error(
    provider: OpenAIProvider, fake: FakeUpstream, reply: Reply, kind: type[GatewayError]
) -> None:
    fake.enqueue(reply)
    with pytest.raises(kind):
        await spoken(provider)


@pytest.mark.parametrize("usage", [{"input_tokens": -1}, {"input_tokens": "many"}, "many", None])
async def test_missing_usage_is_omitted(provider: OpenAIProvider, fake: FakeUpstream, usage: Any) -> None:
    fake.enqueue(stream({"type": "speech.audio.done", "usage": usage}))
    assert await spoken(provider) == [SpeechChunk()]


# Transcripts ---------------------------------------------------------------------------------------------------------


async def test_file_is_the_last_part_and_fields_have_the_servers_names(
    provider: OpenAIProvider, fake: FakeUpstream
) -> None:
    await heard(provider, keywords='["heron", "reed"]', language="en", response_format="vtt", top_secret="7")
    seen = fake.seen[0]
    assert seen.body.index(b'name="hot_words[]"') < seen.body.index(b'name="file"')
    texts, size = read_form(seen)
    assert texts == {
        "model": "upstream-model", "response_format": "verbose_json", "language": "en", "hot_words[]": "reed",
        "top_secret": "7",
    }  # fmt: skip
    assert size == RecordedSilence().size


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"type": "duration", "seconds": 3}, TranscriptUsage(seconds=3.0)),
        (
            {"type": "tokens", "input_tokens": 9, "output_tokens": 4, "input_token_details": {"audio_tokens": 8}},
            TranscriptUsage(input_tokens=9, output_tokens=4, audio_tokens=8),
        ),
        ({"input_tokens": 9, "output_tokens": None, "input_token_details": None}, TranscriptUsage(input_tokens=9)),
        ({"seconds": "three"}, None),
        ({"input_tokens": 1.5}, None),
        ({}, None),
        ("many", None),
        (None, None),
    ],
)  # fmt: skip
async def test_usage_is_read_in_both_forms(
    provider: OpenAIProvider, fake: FakeUpstream, usage: Any, read: TranscriptUsage | None
) -> None:
    fake.enqueue(Reply.json({"text": "x", "usage": usage}))
    assert (await heard(provider)).usage == read


async def test_times_are_read_in_every_format(provider: OpenAIProvider, fake: FakeUpstream) -> None:
    segment = {"id": 0, "start": 0, "end": 1.5, "text": "x", "tokens": None, "avg_logprob": -0.2, "new": True}
    word = {"word": "x", "start": 0, "end": 1, "probability": 0.9}
    fake.enqueue(
        Reply.json({"text": "x", "duration": "1.50", "language": None, "segments": [segment], "words": [word]})
    )
    transcript = await heard(provider, response_format="verbose_json")
    assert transcript.duration == 1.5
    assert transcript.segments is not None and transcript.words is not None
    assert (transcript.segments[0].end, transcript.segments[0].avg_logprob, transcript.segments[0].tokens) == (
        1.5,
        -0.2,
        [],
    )
    assert transcript.words[0].end == 1.0


async def test_whole_answer_is_returned_as_a_stream(provider: OpenAIProvider, fake: FakeUpstream) -> None:
    fake.enqueue(Reply.json({"text": "I heard"}))
    first, last = await streamed(provider)
    assert (first.delta, last.done and last.done.text) == ("I heard", "I heard")


async def test_segments_and_probabilities_are_passed_on(provider: OpenAIProvider, fake: FakeUpstream) -> None:
    logprobs = [{"token": "I", "logprob": -0.1}]
    fake.enqueue(
        stream(
            {"type": "transcript.text.delta", "delta": "I", "logprobs": logprobs},
            {"type": "transcript.text.segment", "id": "s", "start": 0, "end": 1, "text": "I", "speaker": "A"},
            {"type": "transcript.text.done", "text": "I", "logprobs": logprobs},
            done=True,
        )
    )
    delta, segment, last = await streamed(provider, response_format="diarized_json")
    assert (delta.logprobs, segment.segment and segment.segment.speaker) == (logprobs, "A")
    assert last.done is not None and last.done.logprobs == logprobs


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (stream({"type": "transcript.text.delta", "delta": "I"}), UpstreamTruncated),
        (stream({"type": "other"}, done=True), UpstreamTruncated),
        (stream({"error": {"message": "overloaded"}}), UpstreamOverloaded),
        (stream(b"data: nonsense\n\n"), UpstreamInvalidResponse),
        (stream({"type": "transcript.text.segment", "start": "x"}), UpstreamTruncated),
        (Reply.json({"text": None}), UpstreamInvalidResponse),
    ],
)
async def test_stream_without_its_end_is_a_typed_error(
    provider: OpenAIProvider, fake: FakeUpstream, reply: Reply, kind: type[GatewayError]
) -> None:
    fake.enqueue(reply)
    with pytest.raises(kind):
        await streamed(provider)

"""Embeddings, images, speech and transcription through the `gemini` provider."""

from __future__ import annotations

import asyncio
import base64
import math
import tracemalloc
import wave
from collections.abc import AsyncGenerator, AsyncIterator
from io import BytesIO
from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET

from gateway import ImageRequest, SpeechChunk, SpeechRequest, Target, TranscriptEvent, TranscriptionRequest
from gateway.errors import (
    BadRequest,
    ContentFiltered,
    GatewayError,
    RequestTooLarge,
    UpstreamInvalidResponse,
    UpstreamRateLimited,
    UpstreamTruncated,
)
from gateway.schemas.embeddings import decode_embedding_request
from gateway.schemas.images import decode_image_request
from gateway.schemas.speech import decode_speech_request
from gateway.testing import FakeUpstream, Reply, Seen
from gateway_providers.gemini.audio import wav_header
from gateway_providers.gemini.images import image_body
from gateway_providers.gemini.transcription import AudioBody
from tests.polling import until, until_still
from tests.providers.gemini_upstream import (
    BLOCKED,
    PNG,
    SOUND,
    candidate,
    document,
    gemini,
    google_error,
    part,
    provider,
    sse,
    usage,
    vector,
)

# Embeddings --------------------------------------------------------------------------------------------------------

EMBEDDER = Target("gemini", "gemini-embedding-001", "house-vectors")


def embedding(given: Any, **fields: Any) -> Any:
    return decode_embedding_request(msgspec.json.encode({"model": "house-vectors", "input": given, **fields}))


async def test_texts_are_sent_as_one_batch_and_vectors_keep_their_order() -> None:
    async with FakeUpstream(gemini) as fake, provider(fake, task_type="RETRIEVAL_QUERY") as subject:
        answer = await subject.embed(embedding(["one", "two"]), EMBEDDER)
    settings = {"taskType": "RETRIEVAL_QUERY", "model": "models/gemini-embedding-001"}
    assert fake.seen[0].path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    assert fake.seen[0].json == {
        "requests": [{"content": {"parts": [{"text": text}]}, **settings} for text in ("one", "two")]
    }
    assert answer.vectors == [vector("one", 16), vector("two", 16)] and answer.usage is None


async def test_shortened_vectors_are_normalized_to_length_one() -> None:
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        answer = await subject.embed(embedding("one", dimensions=8), EMBEDDER)
    assert fake.seen[0].json["requests"][0]["outputDimensionality"] == 8
    found = cast("list[float]", answer.vectors[0])
    assert len(found) == 8 and math.isclose(math.hypot(*found), 1.0)
    raw = vector("one", 8)
    assert all(math.isclose(a, b / math.hypot(*raw)) for a, b in zip(found, raw, strict=True))


async def test_vector_of_zeros_stays_a_vector_of_zeros() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json({"embeddings": [{"values": [0.0, 0]}]}))
        assert (await subject.embed(embedding("x", dimensions=2), EMBEDDER)).vectors == [[0.0, 0.0]]


async def test_more_than_a_hundred_texts_are_sent_in_several_batches() -> None:
    texts = [f"text {number}" for number in range(250)]
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        answer = await subject.embed(embedding(texts), EMBEDDER)
    assert sorted(len(seen.json["requests"]) for seen in fake.seen) == [50, 100, 100]
    assert answer.vectors == [vector(text, 16) for text in texts]


async def test_usage_is_counted_if_every_batch_reports_it() -> None:
    counted = {"embeddings": [{"values": [1.0]}] * 100, "usageMetadata": {"promptTokenCount": 40}}
    silent = {"embeddings": [{"values": [1.0]}]}
    for last, total in ((silent | {"usageMetadata": {"promptTokenCount": 2}}, 42), (silent, None)):

        def answer(seen: Seen, last: Any = last) -> Reply:
            return Reply.json(counted if len(seen.json["requests"]) == 100 else last)

        async with FakeUpstream(answer) as fake, provider(fake) as subject:
            found = (await subject.embed(embedding(["x"] * 101), EMBEDDER)).usage
        assert (found and found.prompt_tokens) == total


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]]])
async def test_token_numbers_are_refused_before_anything_is_sent(given: Any) -> None:
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        with pytest.raises(BadRequest) as caught:
            await subject.embed(embedding(given), EMBEDDER)
        assert not fake.seen
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "input")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"embeddings": []},
        {"embeddings": [{"values": []}]},
        {"embeddings": [{"values": ["x"]}]},
        [],
        "x",
        {"embeddings": [{"values": [1.0]}, {"values": [1.0]}]},
    ],
)
async def test_answer_without_the_right_vectors_is_invalid(document: Any) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(document))
        with pytest.raises(UpstreamInvalidResponse):
            await subject.embed(embedding("one"), EMBEDDER)


async def test_failed_batch_ends_the_others_and_its_error_is_the_answer() -> None:
    def answer(seen: Seen) -> Reply:
        if len(seen.json["requests"]) == 100:
            return Reply.silence()
        return Reply.json(google_error(429, "RESOURCE_EXHAUSTED", delay="9s"), status=429)

    async with FakeUpstream(answer) as fake, provider(fake) as subject:
        with pytest.raises(UpstreamRateLimited) as caught:
            await asyncio.wait_for(subject.embed(embedding(["x"] * 150), EMBEDDER), 30)
        assert caught.value.retry_after == 9.0
        outcomes = {(await fake.wait_ended(at)).outcome for at in range(2)}
    assert outcomes == {"left", "answered"}


# Images ------------------------------------------------------------------------------------------------------------

PAINTER = Target("gemini", "gemini-2.5-flash-image", "house-painter")


def picture(**fields: Any) -> ImageRequest:
    return decode_image_request(msgspec.json.encode({"model": "house-painter", "prompt": "a heron", **fields}))


async def test_image_is_requested_with_text_and_returned_as_base64() -> None:
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        answer = await subject.generate_images(picture(), PAINTER)
    assert fake.seen[0].json == {
        "contents": [{"role": "user", "parts": [{"text": "a heron"}]}],
        "generationConfig": {"responseModalities": ["TEXT", "IMAGE"]},
    }
    assert [image.b64_json for image in answer.data] == [PNG] and answer.output_format == "png"
    assert answer.usage is not None and answer.usage.output_tokens_details is not UNSET
    assert (answer.usage.input_tokens, answer.usage.output_tokens_details.image_tokens) == (6, 1290)


async def test_several_images_are_separate_calls_of_which_four_run_at_once() -> None:
    running, most, gate = 0, 0, asyncio.Event()

    class Counting(FakeUpstream):
        async def _reply(self, request: Any, seen: Seen) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await gate.wait()
                return await super()._reply(request, seen)
            finally:
                running -= 1

    async with Counting(gemini) as fake, provider(fake) as subject:
        asking = asyncio.create_task(subject.generate_images(picture(n=10), PAINTER))
        await until(lambda: running >= 4)
        assert await until_still(lambda: running) == 4
        gate.set()
        answer = await asking
    assert len(answer.data) == len(fake.seen) == 10 and most == 4
    assert answer.usage is not None and answer.usage.output_tokens == 12_900


@pytest.mark.parametrize(
    ("size", "config"),
    [
        ("auto", None),
        ("1024x1024", {"aspectRatio": "1:1"}),
        ("1536x1024", {"aspectRatio": "3:2"}),
        ("1024x1536", {"aspectRatio": "2:3"}),
        ("1792x1024", {"aspectRatio": "16:9", "imageSize": "2K"}),
        ("2048x2048", {"aspectRatio": "1:1", "imageSize": "2K"}),
        ("3840x2160", {"aspectRatio": "16:9", "imageSize": "4K"}),
        ("4096x4096", {"aspectRatio": "1:1", "imageSize": "4K"}),
    ],
)
def test_size_becomes_an_aspect_ratio_and_a_size_class(size: str, config: dict[str, str] | None) -> None:
    body = msgspec.json.decode(image_body(picture(size=size), safety=(), vertex=False))
    assert body["generationConfig"].get("imageConfig") == config


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"size": "1000x300"}, "size"),
        ({"size": "8192x8192"}, "size"),
        ({"response_format": "url"}, "response_format"),
        ({"output_format": "webp"}, "output_format"),
        ({"output_format": "jpeg"}, "output_format"),
    ],
)
async def test_image_that_gemini_cannot_make_is_refused_before_anything_is_sent(
    fields: dict[str, Any], param: str
) -> None:
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        with pytest.raises(BadRequest) as caught:
            await subject.generate_images(picture(**fields), PAINTER)
        assert not fake.seen
    assert (caught.value.code, caught.value.param) == ("unsupported_value", param)


def test_format_can_be_chosen_on_vertex() -> None:
    body = msgspec.json.decode(image_body(picture(output_format="jpeg"), safety=(), vertex=True))
    assert body["generationConfig"]["imageConfig"] == {"imageOutputOptions": {"mimeType": "image/jpeg"}}


async def images_of(answer: Any) -> Any:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(answer))
        return await subject.generate_images(picture(), PAINTER)


async def test_draft_image_of_the_reasoning_is_not_returned() -> None:
    draft = part(inlineData={"mimeType": "image/png", "data": "AAAA"}, thought=True)
    final = part(inlineData={"mimeType": "image/jpeg", "data": "/9j/"})
    answer = await images_of(document(candidate(draft, final, finish="STOP")))
    assert (answer.data[0].b64_json, answer.output_format, answer.usage) == ("/9j/", "jpeg", None)


@pytest.mark.parametrize(
    "answer", [BLOCKED, *(document(candidate(finish=reason)) for reason in ("NO_IMAGE", "IMAGE_SAFETY", "SAFETY"))]
)
async def test_image_that_gemini_refuses_to_make_is_a_content_policy_violation(answer: Any) -> None:
    with pytest.raises(ContentFiltered) as caught:
        await images_of(answer)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "content_policy_violation", "prompt")


async def test_text_instead_of_an_image_is_an_invalid_response() -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await images_of(document(candidate(part(text="What colour?"), finish="STOP")))


# Speech ------------------------------------------------------------------------------------------------------------

SPEAKER = Target("gemini", "gemini-2.5-flash-preview-tts", "house-voice")
SAMPLES = b"\0\0\1\0\2\0\3\0"


def speech(**fields: Any) -> SpeechRequest:
    body = {"model": "house-voice", "input": "Good morning.", "voice": "coral", "response_format": "pcm", **fields}
    return decode_speech_request(msgspec.json.encode(body))


def spoken(*frames: dict[str, Any]) -> Reply:
    return sse(*frames)


HALF = document(candidate(*SOUND["candidates"][0]["content"]["parts"]), usage=usage(4))


async def spoken_chunks(reply: Reply, **fields: Any) -> list[SpeechChunk]:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(reply)
        return [chunk async for chunk in subject.speak(speech(**fields), SPEAKER)]


async def test_speech_requests_a_voice_and_streams_pcm() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(spoken(HALF, SOUND))
        chunks = [chunk async for chunk in subject.speak(speech(instructions="Say cheerfully:"), SPEAKER)]
        seen = fake.seen[0]
    assert seen.path.endswith("models/gemini-2.5-flash-preview-tts:streamGenerateContent?alt=sse")
    assert seen.json == {
        "contents": [{"role": "user", "parts": [{"text": "Say cheerfully: Good morning."}]}],
        "generationConfig": {
            "responseModalities": ["AUDIO"],
            "speechConfig": {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Aoede"}}},
        },
    }
    assert b"".join(chunk.audio for chunk in chunks) == SAMPLES * 2
    assert chunks[-1].usage is not None and chunks[-1].usage.output_tokens == 30


async def test_wav_has_one_header_and_then_the_same_samples() -> None:
    audio = b"".join(chunk.audio for chunk in await spoken_chunks(spoken(HALF, SOUND), response_format="wav"))
    assert audio[:4] == b"RIFF" and audio[44:] == SAMPLES * 2 and audio.count(b"RIFF") == 1


def test_header_of_a_known_length_is_read_by_the_standard_library() -> None:
    with wave.open(BytesIO(wav_header(len(SAMPLES)) + SAMPLES)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels(), file.getnframes()) == (24_000, 2, 1, 4)


@pytest.mark.parametrize(
    ("voice", "name"),
    [("alloy", "Kore"), ("Charon", "Charon"), ({"id": "mine"}, "Zubenelgenubi"), ("Newone", "Newone")],
)
async def test_voice_names_of_openai_the_operator_and_gemini_are_accepted(voice: Any, name: str) -> None:
    async with FakeUpstream() as fake, provider(fake, voices={"mine": "Zubenelgenubi"}) as subject:
        fake.enqueue(spoken(SOUND))
        assert [chunk async for chunk in subject.speak(speech(voice=voice), SPEAKER)]
        config = fake.seen[0].json["generationConfig"]["speechConfig"]
    assert config == {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": name}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"response_format": kind}, "response_format") for kind in ("mp3", "opus", "aac", "flac")]
    + [({"voice": "../etc"}, "voice"), ({"voice": "a b"}, "voice")],
)
async def test_speech_that_gemini_cannot_make_is_refused_before_anything_is_sent(
    fields: dict[str, Any], param: str
) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        with pytest.raises(BadRequest) as caught:
            await anext(cast("AsyncGenerator[SpeechChunk, None]", subject.speak(speech(**fields), SPEAKER)))
        assert not fake.seen
    assert (caught.value.code, caught.value.param) == ("unsupported_value", param)


def ended(reason: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return document(candidate(*parts, finish=reason))


def strange(media_type: str, data: str = "AAAA") -> list[dict[str, Any]]:
    return [ended("STOP", part(inlineData={"mimeType": media_type, "data": data}))]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([HALF], UpstreamTruncated),
        ([HALF, ended("MAX_TOKENS")], UpstreamTruncated),
        ([HALF, ended("SAFETY")], UpstreamTruncated),
        ([ended("SAFETY")], ContentFiltered),
        ([ended("OTHER")], ContentFiltered),
        ([BLOCKED], ContentFiltered),
        ([ended("STOP")], UpstreamInvalidResponse),
        (strange("audio/mpeg"), UpstreamInvalidResponse),
        (strange("audio/L16;rate=24000", "A"), UpstreamInvalidResponse),
    ],
)
async def test_incomplete_audio_raises_an_error(frames: list[Any], kind: type[GatewayError]) -> None:
    with pytest.raises(kind):
        await spoken_chunks(spoken(*frames))


async def test_closing_a_speech_stream_closes_its_socket() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(msgspec.structs.replace(spoken(HALF, HALF), end="silence"))
        stream = cast("AsyncGenerator[SpeechChunk, None]", subject.speak(speech(), SPEAKER))
        await anext(stream)
        await stream.aclose()
        assert (await fake.wait_ended()).outcome == "left"


# Transcription -----------------------------------------------------------------------------------------------------

LISTENER = Target("gemini", "gemini-2.5-flash", "house-ear")


class Upload:
    """An uploaded audio file that is never whole in memory."""

    filename = "a.mp3"
    seconds = None

    def __init__(self, size: int, *, piece: int = 65_536, media_type: str = "audio/mpeg") -> None:
        self.size = size
        self.media_type = media_type
        self._piece = piece

    async def chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, self.size, self._piece):
            yield bytes((start + at) % 251 for at in range(min(self._piece, self.size - start)))


def upload(size: int, piece: int) -> Upload:
    return Upload(size, piece=piece)


def listening(file: Any, **fields: Any) -> TranscriptionRequest:
    return TranscriptionRequest(model="house-ear", file=file, **fields)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 100, 1000])
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
async def test_audio_encoded_piece_by_piece_gives_the_same_base64(size: int, piece: int) -> None:
    file = upload(size, piece)
    body = AudioBody(listening(file), most=10_000)
    pieces = [chunk async for chunk in body.chunks()]
    sent = b"".join(pieces)
    raw = b"".join([chunk async for chunk in file.chunks()])
    data = msgspec.json.decode(sent)["contents"][0]["parts"][1]["inlineData"]
    assert data == {"mimeType": "audio/mp3", "data": base64.b64encode(raw).decode()}
    assert len(sent) == body.length


async def test_hints_are_part_of_the_instruction_and_cannot_replace_the_audio() -> None:
    hints = {"language": "fr", "keywords": ["Brest"], "prompt": 'here comes the audio "}', "temperature": 0.3}
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        found = await subject.transcribe(listening(upload(9, 4), **hints), LISTENER)
    seen = fake.seen[0]
    instruction, audio = seen.json["contents"][0]["parts"]
    assert "Language: fr." in instruction["text"] and "Brest" in instruction["text"]
    assert instruction["text"].endswith('here comes the audio "}')
    assert base64.b64decode(audio["inlineData"]["data"]) == bytes(at % 251 for at in (0, 1, 2, 3, 4, 5, 6, 7, 8))
    assert seen.json["generationConfig"] == {"temperature": 0.3}
    assert seen.headers["content-length"] == str(len(seen.body)) and "transfer-encoding" not in seen.headers
    assert found.text == "The boats are in." and found.segments is None
    assert found.usage is not None and (found.usage.input_tokens, found.usage.output_tokens) == (9, 4)


async def test_transcript_is_streamed_in_pieces() -> None:
    async with FakeUpstream(gemini) as fake, provider(fake) as subject:
        events = [event async for event in subject.stream_transcript(listening(upload(9, 4)), LISTENER)]
    assert [event.delta for event in events[:-1]] == ["The ", "boats ", "are ", "in. "]
    assert events[-1].done is not None and events[-1].done.text == "The boats are in."


async def test_audio_over_the_limit_is_refused_before_anything_is_sent() -> None:
    async with FakeUpstream(gemini) as fake, provider(fake, max_inline_audio=100) as subject:
        with pytest.raises(RequestTooLarge):
            await subject.transcribe(listening(upload(101, 10)), LISTENER)
        assert not fake.seen


async def test_encoding_a_large_upload_holds_one_piece_at_a_time() -> None:
    class Big:
        filename, media_type, seconds, size = "a.wav", "audio/wav", None, 64 * 1024 * 1024

        async def chunks(self) -> AsyncIterator[bytes]:
            for _ in range(1024):
                yield bytes(65_536)

    body = AudioBody(listening(Big()), most=100 * 1024 * 1024)
    tracemalloc.start()
    try:
        total = 0
        async for chunk in body.chunks():
            total += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == body.length and peak < 1024 * 1024, peak


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (document(candidate(part(text="Half a"), finish="MAX_TOKENS")), UpstreamTruncated),
        (document(candidate(finish="SAFETY")), ContentFiltered),
        (BLOCKED, ContentFiltered),
        (document(candidate(finish="MALFORMED_RESPONSE")), UpstreamInvalidResponse),
    ],
)
async def test_incomplete_transcript_raises_an_error(answer: Any, kind: type[GatewayError]) -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(answer), sse(answer))
        with pytest.raises(kind):
            await subject.transcribe(listening(upload(9, 4)), LISTENER)
        with pytest.raises(kind):
            events: list[TranscriptEvent] = []
            async for event in subject.stream_transcript(listening(upload(9, 4)), LISTENER):
                events.append(event)


async def test_silence_is_an_empty_transcript() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(document(candidate(finish="STOP"), usage=usage(9))))
        assert (await subject.transcribe(listening(upload(9, 4)), LISTENER)).text == ""

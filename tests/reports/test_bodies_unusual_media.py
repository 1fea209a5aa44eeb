"""Vectors, images, sounds and transcripts in another shape than the documented one: delivered, since they are paid for.

- https://github.com/abetlen/llama-cpp-python/issues/1588: each vector is in a list of its own.
- https://github.com/langroid/langroid/pull/922: llama.cpp answers with an array of vectors.
- https://github.com/open-webui/open-webui/issues/19581: SiliconFlow answers with `images`.
- https://github.com/richardr1126/openreader/pull/111: servers make WAV, Ogg or FLAC although MP3 was asked for.
- https://github.com/livekit/agents-js/issues/2320: the same where PCM was asked for.
- https://github.com/tenstorrent/tt-inference-server/issues/1720: a sound as base64 inside a document.
- https://github.com/vllm-project/vllm/issues/49116: vLLM streams transcripts in chunks of a chat.
- https://github.com/mudler/LocalAI/issues/5327: transcripts without `duration`, `language` and parts of segments.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.schemas.speech import MEDIA_TYPES
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import AUDIO, PIXEL
from tests.api.conftest import Client, settled
from tests.ledger_lines import last_line
from tests.polling import until
from tests.reports.endpoints import BODIES, EMBEDDINGS, IMAGES, SPEECH, TRANSCRIPTIONS, post, settings_for

FORM = "x-gateway-response-format"
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
JSON = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}
TWO = {"input": ["a", "b"]}
ONE_VECTOR, OTHER = [0.5, 0.25], [1.0, 0.0]
USAGE = {"prompt_tokens": 2, "total_tokens": 2}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model for each endpoint and dialect."""
    return settings_for(upstream, tmp_path)


async def charged(ledger: Ledger, response: Any) -> Any:
    """The line of a call, whose charge the hold covers."""
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert 0 < -line.amount <= line.meta["hold"]
    return line


async def refused(client: Client, accounts: Accounts, path: str, **sent: Any) -> None:
    """No answer can be made of it: an error that costs nothing."""
    response, content = await post(client, path, **sent)
    assert response.status == 502, content
    assert json.loads(content)["error"]["code"] == "upstream_invalid_response"
    account = await settled(accounts)
    assert (account.balance, account.held) == (10 * NANO, 0)


# Embeddings ----------------------------------------------------------------------------------------------------------


def entries(*indices: Any, vectors: tuple[Any, ...] = (ONE_VECTOR, OTHER)) -> list[dict[str, Any]]:
    return [{"index": index, "embedding": vector} for index, vector in zip(indices, vectors, strict=False)]


def packed(vector: list[float]) -> bytes:
    return struct.pack(f"<{len(vector)}f", *vector)


BINARY = b64encode(packed(ONE_VECTOR)).decode()
PAIRS: list[Any] = [
    {"data": entries("0", "1")},
    {"data": entries(0.0, 1.0)},
    {"data": entries(1, 2)},
    {"data": entries(None, None)},
    {"data": entries(None, 1)},
    {"data": entries(1, 0, vectors=(OTHER, ONE_VECTOR))},
    {"data": entries("2", "1", vectors=(OTHER, ONE_VECTOR))},
    {"data": entries(0, 1, vectors=([ONE_VECTOR], [OTHER]))},
    {"data": entries(0, 1, vectors=(BINARY, OTHER))},
    {"data": entries(0, 1, vectors=(f"{BINARY[:6]}\n{BINARY[6:]}", OTHER))},
    {"data": entries(0, 1, vectors=(BINARY.rstrip("="), OTHER))},
    {"data": entries(0, 1, vectors=(urlsafe_b64encode(packed(ONE_VECTOR)).decode(), OTHER))},
    {"data": [{**entry, "object": 5} for entry in entries(0, 1)], "model": 5, "object": None},
    entries(0, 1),
]


@pytest.mark.parametrize("encoding", ["float", "base64"])
@pytest.mark.parametrize("document", PAIRS)
async def test_vectors_in_another_shape_are_delivered_in_their_places(
    client: Client, upstream: FakeUpstream, ledger: Ledger, document: Any, encoding: str
) -> None:
    upstream.enqueue(Reply.json({**document, "usage": USAGE} if isinstance(document, dict) else document))
    body = {"model": "embeddings-openai", **TWO, "encoding_format": encoding}
    response, content = await post(client, EMBEDDINGS, body=body)
    assert response.status == 200, content
    found = [entry["embedding"] for entry in json.loads(content)["data"]]
    wanted = [ONE_VECTOR, OTHER]
    assert found == (wanted if encoding == "float" else [b64encode(packed(one)).decode() for one in wanted])
    assert json.loads(content)["data"][1]["index"] == 1
    await charged(ledger, response)


@pytest.mark.parametrize(
    "usage", [None, {}, [], "5", {"prompt_tokens": -1}, {"prompt_tokens": "5"}, {"prompt_tokens": 1e18}]
)
async def test_vectors_without_a_possible_usage_are_estimated(
    client: Client, upstream: FakeUpstream, ledger: Ledger, usage: Any
) -> None:
    upstream.enqueue(Reply.json({"data": entries(0, 1), "usage": usage}))
    response, content = await post(client, EMBEDDINGS, body={"model": "embeddings-openai", **TWO})
    assert (response.status, response.headers["x-gateway-estimated"]) == (200, "true"), content
    assert (await charged(ledger, response)).meta["estimated"]


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        entries(0),
        entries(0, 0),
        entries(0, 2),
        [*entries(0, 1), {"index": 2, "embedding": OTHER}],
        entries(0, 1, vectors=(ONE_VECTOR, None)),
        entries(0, 1, vectors=(ONE_VECTOR, [])),
        entries(0, 1, vectors=(ONE_VECTOR, [1.0])),
        entries(0, 1, vectors=(ONE_VECTOR, [1.0, "x"])),
        entries(0, 1, vectors=(ONE_VECTOR, ["1", "0"])),
        entries(0, 1, vectors=([0.5, None, 0.25], OTHER)),
        entries(0, 1, vectors=(ONE_VECTOR, [[1.0, 0.0], [0.5, 0.5]])),
        entries(0, 1, vectors=(ONE_VECTOR, "*")),
    ],
)
async def test_vectors_that_are_not_one_for_each_input_are_refused_and_cost_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, data: Any
) -> None:
    upstream.enqueue(Reply.json({"data": data, "usage": USAGE}))
    await refused(client, accounts, EMBEDDINGS, body={"model": "embeddings-openai", **TWO})


@pytest.mark.parametrize(
    ("model", "given", "document"),
    [
        ("embeddings-cohere", TWO, {"embeddings": [ONE_VECTOR, OTHER]}),
        ("embeddings-cohere", TWO, {"embeddings": {"float": [ONE_VECTOR, OTHER]}, "meta": "none"}),
        ("embeddings-gemini", {"input": "a"}, {"embedding": {"values": ONE_VECTOR}}),
        ("embeddings-gemini", {"input": "a"}, {"embeddings": {"values": ONE_VECTOR}, "usageMetadata": 5}),
    ],
)
async def test_vectors_of_other_dialects_in_another_shape_are_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, model: str, given: Any, document: Any
) -> None:
    upstream.enqueue(Reply.json(document))
    response, content = await post(client, EMBEDDINGS, body={"model": model, **given})
    assert response.status == 200, content
    assert json.loads(content)["data"][0]["embedding"] == ONE_VECTOR
    await charged(ledger, response)


# Images --------------------------------------------------------------------------------------------------------------

URL = "https://images.example.com/heron.png"
MADE = {"type": "image_generation.completed", "b64_json": PIXEL}
IMAGE_ANSWERS: list[tuple[Reply, dict[str, str]]] = [
    (Reply.json({"images": [{"url": URL}]}), {"url": URL}),
    (Reply.json({"data": {"b64_json": PIXEL}}), {"b64_json": PIXEL}),
    (Reply.json({"data": [URL]}), {"url": URL}),
    (Reply.json({"data": [PIXEL]}), {"b64_json": PIXEL}),
    (
        Reply.json({"data": [{"b64_json": PIXEL, "url": 5, "revised_prompt": ["x"]}], "usage": "none"}),
        {"b64_json": PIXEL},
    ),
    (Reply.json({"data": [7, {"b64_json": PIXEL}]}), {"b64_json": PIXEL}),
    (
        Reply(headers=JSON, body=b'\xef\xbb\xbf{"x":NaN,"data":[{"b64_json":"%b"}]}' % PIXEL.encode()),
        {"b64_json": PIXEL},
    ),
    (Reply(headers={"Content-Type": "image/png"}, body=b64decode(PIXEL)), {"b64_json": PIXEL}),
    (Reply.stream([MADE]), {"b64_json": PIXEL}),
    (Reply.stream([{**MADE, "type": None}], done=False), {"b64_json": PIXEL}),
]


@pytest.mark.parametrize(("reply", "image"), IMAGE_ANSWERS)
async def test_image_in_another_shape_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, reply: Reply, image: dict[str, str]
) -> None:
    upstream.enqueue(reply)
    response, content = await post(client, IMAGES, body={"model": "images-openai", **BODIES[IMAGES]})
    assert response.status == 200, content
    assert json.loads(content)["data"] == [image]
    assert response.headers.get(FORM) == ("url" if "url" in image else None)
    assert (await charged(ledger, response)).amount == -NANO // 100


PREVIEW = {"type": "image_generation.partial_image", "partial_image_index": 0}


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "image_generation.completed", "url": URL}],
        [{"type": "image_generation.completed", "b64_json": None, "url": URL, "usage": [1]}],
        [{**PREVIEW, "b64_json": "*"}, MADE],
        [{**PREVIEW, "b64_json": None}, MADE],
        [{"b64_json": PIXEL}],
        [MADE, b"data: [DONE]\n\n"],
    ],
)
async def test_streamed_image_in_another_shape_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, events: list[Any]
) -> None:
    upstream.enqueue(Reply.stream(events, done=False))
    body = {"model": "images-openai", **BODIES[IMAGES], "stream": True, "partial_images": 1}
    response, content = await post(client, IMAGES, body=body)
    assert (response.status, content.count(b"event: image_generation.completed")) == (200, 1), content
    assert b"event: error" not in content
    assert (await charged(ledger, response)).amount == -NANO // 100


@pytest.mark.parametrize("reply", [Reply.json({"data": [{}]}), Reply.json({"data": ["*"]}), Reply.json({"images": []})])
async def test_answer_without_an_image_is_refused_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, reply: Reply
) -> None:
    upstream.enqueue(reply)
    await refused(client, accounts, IMAGES, body={"model": "images-openai", **BODIES[IMAGES]})


def drawn(*parts: Any, reason: str | None = "STOP") -> Reply:
    return Reply.json({"candidates": [{"content": {"parts": list(parts)}, "finishReason": reason}]})


@pytest.mark.parametrize("mime_type", ["image/png", "", None])
async def test_images_of_gemini_that_were_made_are_delivered_without_the_others(
    client: Client, upstream: FakeUpstream, ledger: Ledger, mime_type: str | None
) -> None:
    made = drawn({"inlineData": {"mimeType": mime_type, "data": PIXEL}})
    failed = {1: drawn({"text": "no"}, reason="IMAGE_SAFETY"), 2: Reply.error(500, "no")}
    upstream.answer = lambda _: failed.get(len(upstream.seen), made)
    failed[1].delay = failed[2].delay = 0.3
    response, content = await post(client, IMAGES, body={"model": "images-gemini", **BODIES[IMAGES], "n": 4})
    assert response.status == 200, content
    assert json.loads(content)["data"] == [{"b64_json": PIXEL}] * 2
    assert (await charged(ledger, response)).amount == -2 * NANO // 100


# Speech --------------------------------------------------------------------------------------------------------------


def spoken(format: str, media_type: str = "audio/mpeg") -> Reply:
    return Reply(headers={"Content-Type": media_type}, body=AUDIO[format])


@pytest.mark.parametrize("media_type", ["audio/mpeg", "application/octet-stream", "text/plain", ""])
@pytest.mark.parametrize("given", ["wav", "mp3", "flac", "opus"])
@pytest.mark.parametrize("asked", ["mp3", "wav", "opus"])
async def test_sound_in_another_format_is_delivered_and_named(
    client: Client, upstream: FakeUpstream, ledger: Ledger, asked: str, given: str, media_type: str
) -> None:
    upstream.enqueue(spoken(given, media_type))
    body = {"model": "speech-openai", **BODIES[SPEECH], "response_format": asked}
    response, content = await post(client, SPEECH, body=body)
    assert (response.status, content) == (200, AUDIO[given])
    assert response.headers["Content-Type"] == MEDIA_TYPES[given]
    assert response.headers.get(FORM) == (given if given != asked else None)
    assert (await charged(ledger, response)).amount == -13 * NANO // 1000


@pytest.mark.parametrize("given", ["wav", "mp3", "pcm"])
async def test_seconds_of_a_sound_in_another_format_are_those_that_it_has(
    client: Client, upstream: FakeUpstream, ledger: Ledger, given: str
) -> None:
    """A second of PCM was charged as six seconds of MP3."""
    upstream.enqueue(spoken(given, "audio/pcm"))
    body = {"model": "voice-by-second", **BODIES[SPEECH], "response_format": "mp3" if given != "mp3" else "wav"}
    response, content = await post(client, SPEECH, body=body)
    assert (response.status, content, response.headers[FORM]) == (200, AUDIO[given], given)
    line = await charged(ledger, response)
    assert abs(line.amount + NANO // 100) <= NANO // 5000 and not line.meta.get("estimated")


ENCODED = b64encode(AUDIO["wav"]).decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "document",
    [
        {"audio": ENCODED},
        {"audio_base64": ENCODED},
        {"audioContent": ENCODED},
        {"data": {"audio": ENCODED}},
        {"audio": {"data": f"data:audio/wav;base64,{ENCODED}"}},
    ],
)
async def test_sound_inside_a_document_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, document: Any, stream: bool
) -> None:
    upstream.enqueue(Reply.json(document))
    body = {"model": "speech-openai", **BODIES[SPEECH], **({"stream_format": "sse"} if stream else {})}
    response, content = await post(client, SPEECH, body=body)
    assert response.status == 200
    assert (ENCODED.encode() in content) if stream else (content == AUDIO["wav"])
    await charged(ledger, response)


async def test_events_of_a_sound_that_end_with_done_are_whole(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    lines = f"{ENCODED[:100]}\n{ENCODED[100:]}"
    upstream.enqueue(Reply.stream([{"type": "speech.audio.delta", "audio": lines, "usage": 5}]))
    response, content = await post(client, SPEECH, body={"model": "speech-openai", **BODIES[SPEECH]})
    assert (response.status, content) == (200, AUDIO["wav"])
    await charged(ledger, response)


@pytest.mark.parametrize(
    "reply",
    [
        Reply.json({"audio": b64encode(b"no sound at all").decode()}),
        Reply.json({"data": {"audio": AUDIO["mp3"][:64].hex()}}),
        Reply.json({"status": "ok"}),
        Reply(headers=PLAIN, body=b"All is well"),
        Reply(headers={"Content-Type": "text/html"}, body=b"<html>"),
        Reply(headers={"Content-Type": "audio/mpeg"}, body=b""),
    ],
)
async def test_answer_without_a_sound_is_refused_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, reply: Reply
) -> None:
    upstream.enqueue(reply)
    await refused(client, accounts, SPEECH, body={"model": "speech-openai", **BODIES[SPEECH]})


def gemini_sound(mime_type: str, data: bytes) -> Reply:
    part = {"inlineData": {"mimeType": mime_type, "data": b64encode(data).decode()}}
    return Reply.stream([{"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}], done=False)


SLOWER = AUDIO["wav"][:24] + (16_000).to_bytes(4, "little") + (32_000).to_bytes(4, "little") + AUDIO["wav"][32:]


@pytest.mark.parametrize(
    ("asked", "mime_type", "data", "given"),
    [
        ("wav", "audio/L16;rate=24000", AUDIO["pcm"], "wav"),
        ("pcm", "audio/wav", AUDIO["wav"], "pcm"),
        ("wav", "audio/wav", AUDIO["wav"], "wav"),
        ("wav", "audio/L16;rate=16000", AUDIO["pcm"], "wav"),
        ("pcm", "audio/L16;rate=16000", AUDIO["pcm"], "wav"),
        ("pcm", "audio/wav", SLOWER, "wav"),
        ("wav", "audio/mpeg", AUDIO["mp3"], "mp3"),
        ("pcm", "audio/ogg", AUDIO["opus"], "opus"),
    ],
)
async def test_sound_of_gemini_in_another_format_is_delivered_and_named(
    client: Client, upstream: FakeUpstream, ledger: Ledger, asked: str, mime_type: str, data: bytes, given: str
) -> None:
    upstream.enqueue(gemini_sound(mime_type, data))
    body = {"model": "speech-gemini", **BODIES[SPEECH], "response_format": asked}
    response, content = await post(client, SPEECH, body=body)
    assert (response.status, response.headers["Content-Type"]) == (200, MEDIA_TYPES[given]), content
    assert response.headers.get(FORM) == (given if given != asked else None)
    rate = 16_000 if "16000" in mime_type or data is SLOWER else 24_000
    if given == "wav":
        assert (int.from_bytes(content[24:28], "little"), content[44:]) == (rate, AUDIO["pcm"])
    else:
        assert content == (AUDIO["pcm"] if given == "pcm" else data)
    await charged(ledger, response)


# Transcripts ---------------------------------------------------------------------------------------------------------

TEXT = "Three herons."
SPOKEN = [{"start": 0, "end": 1, "text": " Three"}, {"start": "1", "end": None, "text": " herons.", "tokens": "none"}]
WORDS = [{"word": "Three", "start": 0, "end": 1}, {"word": "herons.", "start": 1, "end": 2}]
DELTAS = [{"type": "transcript.text.delta", "delta": "Three "}, {"type": "transcript.text.delta", "delta": "herons."}]
CHUNKS = [
    {"object": "transcription.chunk", "choices": [{"delta": {"content": text}}]} for text in ("Three ", "herons.")
]
TRANSCRIPTS: list[Reply] = [
    Reply(headers=PLAIN, body=TEXT.encode()),
    Reply(headers=JSON, body=TEXT.encode()),
    Reply(headers={}, body=TEXT.encode()),
    Reply.json(TEXT),
    Reply(headers=JSON, body=b"1\n00:00:00,000 --> 00:00:02,000\nThree herons.\n"),
    Reply.json({"text": TEXT, "segments": None, "words": None, "duration": None, "usage": None, "language": 5}),
    Reply.json({"text": TEXT, "segments": "none", "words": [{"word": "Three"}], "duration": "2.0", "usage": [1]}),
    Reply.json(
        {"text": TEXT, "type": None, "delta": None, "duration": -1, "usage": {"type": "tokens", "input_tokens": "x"}}
    ),
    Reply.json({"segments": SPOKEN}),
    Reply.json({"text": None, "segments": SPOKEN}),
    Reply.json({"words": WORDS}),
    Reply.json(SPOKEN),
    Reply(headers=JSON, body=b'{"text":"Three herons.","segments":[{"start":0,"end":2,"text":"x","avg_logprob":NaN}]}'),
    Reply.stream([*DELTAS, {"type": "transcript.text.done", "text": TEXT}], done=False),
    Reply.stream([*DELTAS, {"type": "transcript.text.done"}], done=False),
    Reply.stream(DELTAS),
    Reply.stream(CHUNKS),
]


@pytest.mark.parametrize("format", ["json", "verbose_json", "text", "vtt"])
@pytest.mark.parametrize("reply", TRANSCRIPTS)
async def test_transcript_in_another_shape_is_delivered_in_the_requested_one(
    client: Client, upstream: FakeUpstream, ledger: Ledger, reply: Reply, format: str
) -> None:
    upstream.enqueue(reply)
    fields = (("model", "transcription-openai"), ("response_format", format))
    response, content = await post(client, TRANSCRIPTIONS, fields=fields)
    assert response.status == 200, content
    if format in ("text", "vtt"):
        assert content == b"Three herons.\n" if format == "text" else content.startswith(b"WEBVTT")
    else:
        document = json.loads(content)
        assert document["text"] == TEXT
        assert format == "json" or (document["duration"] > 0 and document["segments"])
    assert (await charged(ledger, response)).amount == -2 * NANO // 100


@pytest.mark.parametrize(
    "reply", [Reply.stream(DELTAS), Reply.stream(CHUNKS), Reply.json({"text": TEXT}), Reply.json(TEXT)]
)
async def test_streamed_transcript_in_another_shape_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, reply: Reply
) -> None:
    upstream.enqueue(reply)
    response, content = await post(
        client, TRANSCRIPTIONS, fields=(("model", "transcription-openai"), ("stream", "true"))
    )
    assert response.status == 200, content
    events = [json.loads(line[6:]) for line in content.decode().splitlines() if line]
    assert (events[-1]["type"], events[-1]["text"]) == ("transcript.text.done", TEXT)
    assert "".join(event.get("delta", "") for event in events) == TEXT
    await charged(ledger, response)


@pytest.mark.parametrize(
    "reply",
    [
        Reply.json({"text": None}),
        Reply.json({"segments": []}),
        Reply.json([]),
        Reply.json(5),
        Reply(headers=JSON, body=b""),
        Reply(headers={"Content-Type": "text/html"}, body=b"<html>"),
        Reply.stream([{"type": "other"}], done=False),
    ],
)
async def test_answer_without_a_transcript_is_refused_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, reply: Reply
) -> None:
    upstream.enqueue(reply)
    response, content = await post(client, TRANSCRIPTIONS, fields=(("model", "transcription-openai"),))
    assert response.status == 502, content
    account = await settled(accounts)
    assert (account.balance, account.held) == (10 * NANO, 0)


@pytest.mark.parametrize(
    ("model", "document"),
    [
        ("deepgram", {"results": {"channels": [], "utterances": [{"start": 0, "end": 1, "transcript": TEXT}]}}),
        (
            "deepgram",
            {"results": {"channels": [{"alternatives": {"transcript": TEXT}}], "utterances": "none"}, "metadata": 5},
        ),
        (
            "deepgram",
            {"results": {"channels": [{"alternatives": [{"transcript": TEXT, "words": [{"start": "x"}, 5]}]}]}},
        ),
        ("elevenlabs", {"words": [{"text": "Three"}, {"text": " ", "type": "spacing"}, {"text": "herons."}]}),
        ("elevenlabs", {"text": TEXT, "words": "none", "language_code": 5, "audio_duration_secs": "2"}),
        ("gemini", {"candidates": {"content": {"parts": {"text": TEXT}}}}),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"text": TEXT}]}}], "usageMetadata": {"promptTokenCount": "x"}},
        ),
    ],
)
async def test_transcript_of_other_dialects_in_another_shape_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, model: str, document: Any
) -> None:
    upstream.enqueue(Reply.json(document))
    response, content = await post(client, TRANSCRIPTIONS, fields=(("model", f"transcription-{model}"),))
    assert (response.status, json.loads(content)["text"]) == (200, TEXT)
    await charged(ledger, response)

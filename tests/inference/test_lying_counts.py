"""Counts that an upstream cannot have: the charge stays within the bounds of the request and of what was delivered."""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from gateway.testing.chat_script import ChatScript
from gateway.testing.openai_dialect import PIXEL
from tests.api.conftest import Client
from tests.api.endpoints.test_transcriptions import encode, wav
from tests.billing.pdfs import file_part, page_tree
from tests.ledger_lines import last_line
from tests.polling import until

PRICE = {"input": 1, "output": 10, "audio_input": 1, "audio_output": 10, "image_output": 10}
DEAR_IMAGES = {"input": 1, "output": 10, "image_output": 120}
MARGIN = 4096  # tokens of input that an upstream may add to a request


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model for every endpoint."""
    endpoints = ["chat", "embeddings", "images", "rerank", "speech", "transcription"]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "up": {"plugin": "openai", "base_url": upstream.base_url},
                "texts": {"plugin": "openai", "base_url": upstream.base_url, "completions": True},
            },
            "groups": {"default": {}},
            "models": {
                "m1": {"provider": "up", "price": PRICE, "endpoints": endpoints, "retries": 0},
                "texts": {"provider": "texts", "price": PRICE, "retries": 0},
                "gemini": {"provider": "up", "model": "gemini-2.5-pro", "price": PRICE},
                "pictures": {"provider": "up", "price": DEAR_IMAGES},
            },
        },
        demo=True,
    )


def lie(prompt: int, completion: int) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def charged(ledger: Ledger, response: Any) -> Any:
    """The meta of the call's ledger line."""
    return (await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))).meta


@pytest.mark.holds("README.md#model-gateway-1", "prices.md#counts-of-upstreams-1", "prices.md#counts-of-upstreams-3")
@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("stream", [True, False])
async def test_output_above_the_limit_is_clipped_to_the_limit(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool, choices: int, caplog: Any
) -> None:
    upstream.answer = ChatScript(text="one two", usage=lie(8, 999_000)).answer
    with caplog.at_level(logging.WARNING, logger="gateway"):
        if stream:
            response, _, _ = await client.stream(max_tokens=16, n=choices, stream_options={"include_usage": True})
        else:
            response, answer = await client.chat(max_tokens=16, n=choices)
            assert answer["usage"] == {**answer["usage"], **lie(8, 16 * choices)}
            assert response.headers["x-gateway-estimated"] == "true"
    meta = await charged(ledger, response)
    assert (meta["usage"]["out_text"], meta["estimated"]) == (16 * choices, True)
    assert f"{response.headers['x-request-id']}: usage of up corrected: output above its limit" in caplog.text


@pytest.mark.holds("operations/log.md#log-lines-3")
async def test_upstream_that_counts_wrongly_all_the_time_is_logged_once_per_target_and_minute(
    client: Client, upstream: FakeUpstream, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.answer = ChatScript(text="one two", usage=lie(8, 999_000)).answer
    with caplog.at_level(logging.WARNING, logger="gateway"):
        for _ in range(4):
            await client.chat(max_tokens=16)
        assert caplog.text.count("usage of up corrected") == 1
        monkeypatch.setattr("gateway.log.WARN_EVERY", 0.0)
        await client.chat(max_tokens=16)
    first, second = [record.getMessage() for record in caplog.records if "corrected" in record.getMessage()]
    assert first.endswith("usage of up corrected: output above its limit")
    assert "usage of up corrected: output above its limit (4 calls of " in second


async def test_output_a_little_above_the_limit_is_believed(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.answer = ChatScript(usage=lie(8, 1164)).answer
    response, _ = await client.chat(max_tokens=1000)
    meta = await charged(ledger, response)
    assert (meta["usage"]["out_text"], meta.get("estimated", False)) == (1164, False)


@pytest.mark.holds("prices.md#counts-of-upstreams-1", "prices.md#counts-of-upstreams-4")
@pytest.mark.parametrize("stream", [True, False])
async def test_input_above_what_was_forwarded_is_clipped(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    upstream.answer = ChatScript(usage=lie(200_000, 3)).answer
    response = (await client.stream())[0] if stream else (await client.chat())[0]
    meta = await charged(ledger, response)
    assert MARGIN < meta["usage"]["in_text"] <= MARGIN + 200
    assert meta["estimated"]


async def test_count_far_below_what_was_delivered_is_replaced_by_our_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.answer = ChatScript(text="word " * 1000, usage=lie(8, 10)).answer
    meta = await charged(ledger, (await client.stream())[0])
    assert (meta["usage"]["out_text"], meta["estimated"]) == (1250, True)


@pytest.mark.holds("prices.md#counts-of-upstreams-1")
@pytest.mark.parametrize("stream", [True, False])
async def test_completions_are_charged_at_most_the_output_of_all_texts(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    body = {"model": "texts", "prompt": ["one", "two"], "n": 2, "max_tokens": 16, "stream": stream}
    upstream.tamper = lambda reply: _with_count(reply, lie(8, 999_000))
    async with client.request("POST", "/v1/completions", json=body) as response:
        await response.read()
    meta = await charged(ledger, response)
    assert (meta["usage"]["out_text"], meta["estimated"]) == (4 * 16, True)


def _with_count(reply: Reply, usage: dict[str, Any]) -> Reply:
    """The reply of an upstream with another count."""
    told = msgspec.json.encode(usage)
    count = re.compile(rb'(?<="usage":){"prompt_tokens":[^}]*}')
    frames = None if reply.frames is None else [count.sub(told, frame) for frame in reply.frames]
    return msgspec.structs.replace(reply, body=count.sub(told, reply.body), frames=frames)


async def test_embeddings_are_charged_at_most_the_bytes_that_were_forwarded_and_the_margin(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    usage = {"prompt_tokens": 10**9, "total_tokens": 10**9}
    upstream.enqueue(Reply.json({"data": [{"embedding": [1.0], "index": 0}], "usage": usage}))
    async with client.request("POST", "/v1/embeddings", json={"model": "m1", "input": "one two"}) as response:
        answer = await response.json()
        assert response.headers["x-gateway-estimated"] == "true"
    meta = await charged(ledger, response)
    assert MARGIN < meta["usage"]["in_text"] <= MARGIN + 100
    assert answer["usage"]["prompt_tokens"] == meta["usage"]["in_text"]
    assert meta["estimated"]


async def test_rerankings_are_charged_at_most_the_bytes_that_were_forwarded_and_the_margin(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    usage = {"prompt_tokens": 10**9, "total_tokens": 10**9}
    upstream.enqueue(Reply.json({"results": [{"index": 0, "relevance_score": 1.0}], "usage": usage}))
    body = {"model": "m1", "query": "one", "documents": ["one two"]}
    async with client.request("POST", "/v1/rerank", json=body) as response:
        answer = await response.json()
        assert response.headers["x-gateway-estimated"] == "true"
    meta = await charged(ledger, response)
    assert MARGIN < meta["usage"]["in_text"] <= MARGIN + 100
    assert answer["usage"]["prompt_tokens"] == meta["usage"]["in_text"]
    assert meta["estimated"]


@pytest.mark.holds("prices.md#counts-of-upstreams-3")
@pytest.mark.parametrize("stream", [True, False])
async def test_images_are_charged_at_most_the_output_that_was_held(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    usage = {"input_tokens": 9000, "output_tokens": 900_000, "total_tokens": 909_000}
    if stream:
        data = msgspec.json.encode({"type": "image_generation.completed", "b64_json": PIXEL, "usage": usage})
        frame = b"event: image_generation.completed\ndata: %b\n\n" % data
        upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[frame]))
    else:
        upstream.enqueue(Reply.json({"created": 1, "data": [{"b64_json": PIXEL}], "usage": usage}))
    document = {"model": "m1", "prompt": "a heron", "size": "1024x1024", "quality": "low", "stream": stream}
    async with client.request("POST", "/v1/images/generations", json=document) as response:
        await response.read()
    meta = await charged(ledger, response)
    assert meta["usage"]["out_image"] == 500  # the most that an image of low quality is held for
    assert meta["usage"]["in_text"] <= MARGIN + 200
    assert meta["estimated"]


@pytest.mark.holds("prices.md#counts-of-upstreams-3", "prices.md#counts-of-upstreams-4")
async def test_edits_are_charged_at_most_what_their_images_and_the_hold_permit(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    usage = {"input_tokens": 900_000, "output_tokens": 900_000, "total_tokens": 1_800_000}
    upstream.enqueue(Reply.json({"created": 1, "data": [{"b64_json": PIXEL}], "usage": usage}))
    headers = {**client.headers, "Content-Type": "multipart/form-data; boundary=edge"}
    fields = ("model", "m1"), ("prompt", "a heron"), ("size", "1024x1024"), ("quality", "low")
    data = encode(*fields, file=b64decode(PIXEL) + bytes(500_000), name="image")
    async with client.request("POST", "/v1/images/edits", headers=headers, data=data) as response:
        assert response.status == 200
        await response.read()
    meta = await charged(ledger, response)
    assert meta["usage"]["out_image"] == 500
    assert meta["usage"]["in_text"] + meta["usage"].get("in_image", 0) <= MARGIN + 4 * 1100 + 100
    assert meta["estimated"]


@pytest.mark.holds("prices.md#counts-of-upstreams-3")
async def test_speech_is_charged_at_most_the_output_that_was_held(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    sound = {"type": "speech.audio.delta", "audio": "AAAA" * 1000}
    usage = {"input_tokens": 9000, "output_tokens": 900_000, "total_tokens": 909_000}
    upstream.enqueue(Reply.stream([sound, {"type": "speech.audio.done", "usage": usage}], done=False))
    document = {"model": "m1", "input": "a heron", "voice": "alloy", "stream_format": "sse", "response_format": "pcm"}
    async with client.request("POST", "/v1/audio/speech", json=document) as response:
        text = await response.text()
    meta = await charged(ledger, response)
    assert meta["usage"]["out_audio"] < 300
    assert meta["usage"]["in_text"] <= MARGIN + 200
    assert meta["estimated"]
    assert f'"output_tokens":{meta["usage"]["out_audio"]}' in text


@pytest.mark.holds("prices.md#counts-of-upstreams-3")
@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations"])
async def test_transcripts_are_charged_at_most_the_output_that_was_held(
    client: Client, upstream: FakeUpstream, ledger: Ledger, path: str
) -> None:
    details = {"text_tokens": 0, "audio_tokens": 60_000}
    usage = {"type": "tokens", "input_tokens": 60_000, "output_tokens": 90_000, "input_token_details": details}
    upstream.enqueue(Reply.json({"text": "a heron", "usage": usage}))
    headers = {**client.headers, "Content-Type": "multipart/form-data; boundary=edge"}
    data = encode(("model", "m1"), file=wav(0.1))
    async with client.request("POST", path, headers=headers, data=data) as response:
        await response.read()
    meta = await charged(ledger, response)
    assert meta["usage"]["out_text"] < 100
    assert meta["usage"]["in_audio"] <= MARGIN + 6000
    assert meta["estimated"]


@pytest.mark.holds("prices.md#counts-of-upstreams-4")
async def test_count_of_a_pdf_with_many_small_pages_is_believed(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    pages = 300  # held as 450,000 tokens; some 1,000 tokens a page is usual
    document = file_part(b"%PDF-1.7\n" + page_tree(pages, object_streams=True))
    upstream.answer = ChatScript(text="one two", usage=lie(pages * 1000, 2)).answer
    response, _ = await client.chat(messages=[{"role": "user", "content": [document]}])
    meta = await charged(ledger, response)
    assert meta["usage"]["in_text"] == pages * 1000


@pytest.mark.holds("prices.md#estimates-18")
async def test_count_of_a_video_that_the_upstream_fetches_is_believed(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    tokens = 600_000  # of half an hour
    upstream.answer = ChatScript(text="one two", usage=lie(tokens, 2)).answer
    video = {"type": "image_url", "image_url": {"url": "https://www.youtube.com/watch?v=dQw4w9WgXcQ"}}
    response, _ = await client.chat(model="gemini", messages=[{"role": "user", "content": [video]}])
    meta = await charged(ledger, response)
    assert meta["usage"]["in_text"] == tokens


@pytest.mark.holds("prices.md#counts-of-upstreams-6")
@pytest.mark.parametrize("stream", [True, False])
async def test_images_of_a_chat_are_charged_as_images_where_the_upstream_counts_its_output_without_details(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    upstream.answer = ChatScript(text="one two", images=1, usage=lie(8, 1292)).answer
    send = client.stream if stream else client.chat
    response, *_ = await send(model="pictures", max_tokens=2000)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert -line.amount >= 1290 * 120_000  # nano-units: 0.15, and not 0.013

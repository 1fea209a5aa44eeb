"""The `fake` provider's vectors and images: foretold, valid, and failing on demand."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from gateway import Target, Upstream
from gateway.billing.media_size import image_size
from gateway.errors import UpstreamRateLimited
from gateway.schemas.embeddings import decode_embedding_request
from gateway.schemas.images import decode_image_request
from gateway_providers.fake import FakeProvider

TARGET = Target("fake", "m")


def scripted(**script: Any) -> FakeProvider:
    return FakeProvider(msgspec.convert({"models": {"m": script}}, FakeProvider.Options), Upstream())


def texts(given: Any, **fields: Any) -> Any:
    return decode_embedding_request(msgspec.json.encode({"model": "m", "input": given, **fields}))


def picture(**fields: Any) -> Any:
    return decode_image_request(msgspec.json.encode({"model": "m", "prompt": "a grey heron", **fields}))


async def test_vectors_depend_on_the_text_alone_and_have_length_one() -> None:
    answer = await scripted().embed(texts(["a", "b", "a"]), TARGET)
    first, second, again = answer.vectors
    assert first == again != second
    assert sum(number * number for number in first) == pytest.approx(1.0)
    assert (await scripted().embed(texts("b"), TARGET)).vectors == [second]


async def test_words_and_token_numbers_are_counted() -> None:
    usage = (await scripted().embed(texts(["one two", "three"]), TARGET)).usage
    assert usage is not None
    assert usage.prompt_tokens == 3
    usage = (await scripted().embed(texts([[1, 2], [3, 4, 5]]), TARGET)).usage
    assert usage is not None
    assert usage.prompt_tokens == 5


async def test_image_is_a_valid_png_that_depends_on_the_prompt() -> None:
    answer = await scripted().generate_images(picture(n=2), TARGET)
    first, second = (str(image.b64_json) for image in answer.data)
    assert first != second
    assert image_size(f"data:image/png;base64,{first}") == (8, 8)
    chunks = list(png_chunks(b64decode(first)))
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    assert len(zlib.decompress(chunks[1][1])) == 8 * (1 + 3 * 8)
    assert (await scripted().generate_images(picture(), TARGET)).data[0].b64_json == first


def png_chunks(data: bytes) -> Any:
    at = 8
    while at < len(data):
        size = struct.unpack(">I", data[at : at + 4])[0]
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        yield kind, body
        at += 12 + size


async def test_stream_sends_previews_then_the_image_with_growing_usage() -> None:
    events = [event async for event in scripted().stream_images(picture(stream=True, n=2, partial_images=1), TARGET)]
    assert [event.partial_index for event in events] == [0, None, 0, None]
    assert [event.usage.output_tokens for event in events if event.usage] == [100, 200]


async def test_scripted_errors_and_delays_work_on_every_endpoint() -> None:
    failing = scripted(fail_after=0, error="UpstreamRateLimited")
    with pytest.raises(UpstreamRateLimited):
        await failing.embed(texts("a"), TARGET)
    with pytest.raises(UpstreamRateLimited):
        await failing.generate_images(picture(), TARGET)
    with pytest.raises(UpstreamRateLimited):
        _ = [event async for event in failing.stream_images(picture(stream=True), TARGET)]


@pytest.mark.parametrize(("kind", "count"), [("none", None), ("absurd", 10**18), ("text", "many")])
async def test_usage_can_be_missing_or_wrong(kind: str, count: Any) -> None:
    embedded = (await scripted(usage=kind).embed(texts("a"), TARGET)).usage
    drawn = (await scripted(usage=kind).generate_images(picture(), TARGET)).usage
    assert (embedded.prompt_tokens if embedded else None) == count
    assert (drawn.output_tokens if drawn else None) == count

"""The `openai` provider's images: what it sends, and what it makes of documents and events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway import Event, ImageEvent, ImageUsage, Target, Upstream
from gateway.errors import (
    ContentFiltered,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamTruncated,
)
from gateway.schemas.images import decode_image_request
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import PIXEL
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.images import ImageReader, image_body, read_images

TARGET = Target("p", "upstream-name", "public-name")
Options = OpenAIProvider.Options


def request(**fields: Any) -> Any:
    return decode_image_request(msgspec.json.encode({"model": "m", "prompt": "p", **fields}))


def sent(*, formats: bool = True, **fields: Any) -> Any:
    asked = request(**fields)
    before = dict(asked.fields)
    body = image_body(asked, TARGET, Options(), formats=formats, stream=False)
    assert asked.fields == before
    return msgspec.json.decode(body)


def usage(made: int, *, text: int = 10) -> dict[str, Any]:
    details = {"text_tokens": text, "image_tokens": 0}
    return {
        "input_tokens": text,
        "output_tokens": made,
        "total_tokens": text + made,
        "input_tokens_details": details,
    }


def test_body_is_the_callers_with_the_upstreams_model_name_and_requests_base64() -> None:
    body = sent(size="1024x1024", n=2, seed=1)
    assert body == {
        "model": "upstream-name", "prompt": "p", "size": "1024x1024", "n": 2, "seed": 1, "response_format": "b64_json"
    }  # fmt: skip
    assert sent(response_format="url")["response_format"] == "url"
    assert "response_format" not in sent(formats=False, response_format="b64_json")


def test_stream_field_is_sent_and_whole_answers_request_no_previews() -> None:
    asked = request(stream=True, partial_images=2, response_format="b64_json")
    assert msgspec.json.decode(image_body(asked, TARGET, Options(), formats=True, stream=True)) == {
        "model": "upstream-name", "prompt": "p", "stream": True, "partial_images": 2
    }  # fmt: skip
    assert sent(partial_images=0, stream=False).keys() == {"model", "prompt", "response_format"}


@pytest.mark.parametrize(
    ("base_url", "said", "urls"),
    [
        ("https://api.openai.com/v1", "auto", False),
        ("https://api.openai.com/v1", "send", True),
        ("https://other.invalid/v1", "auto", True),
        ("https://other.invalid/v1", "omit", False),
    ],
)
def test_image_urls_are_requested_if_the_response_format_is_sent(base_url: str, said: Any, urls: bool) -> None:
    subject = OpenAIProvider(Options(base_url=base_url, image_response_format=said), Upstream())
    assert subject.gives_urls is urls


def test_document_is_read_with_all_its_fields() -> None:
    document = {"data": [{"b64_json": PIXEL, "revised_prompt": "r"}], "usage": usage(5), "size": "1x1", "quality": 3}
    answer = read_images(msgspec.json.encode(document))
    assert (answer.data[0].b64_json, answer.data[0].revised_prompt) == (PIXEL, "r")
    assert answer.usage is not None
    assert answer.usage.output_tokens == 5
    assert (answer.size, answer.quality, answer.background) == ("1x1", None, None)


@pytest.mark.parametrize(
    "told", [None, {}, "x", {"output_tokens": -1}, {"output_tokens": 10**18}, {"output_tokens": "5"}]
)
def test_impossible_usage_is_dropped(told: Any) -> None:
    assert read_images(msgspec.json.encode({"data": [{"b64_json": PIXEL}], "usage": told})).usage is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"data":[]}', b'{"data":[1]}', b"\xff", b"[" * 100_000])
def test_document_without_images_is_an_invalid_response(body: bytes) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        read_images(body)


def event(kind: str, **fields: Any) -> Event:
    return Event(msgspec.json.encode({"type": f"image_generation.{kind}", "b64_json": PIXEL, **fields}))


def test_events_become_previews_or_images_or_are_skipped() -> None:
    reader = ImageReader()
    assert reader.read(event("partial_image", partial_image_index=1, size="1x1")) == ImageEvent(PIXEL, 1, None, "1x1")
    assert reader.read(event("something_new")) is None
    finished = reader.read(event("completed", usage=usage(5)))
    assert finished is not None
    assert finished.partial_index is None
    assert reader.completed == 1
    named = Event(msgspec.json.encode({"b64_json": PIXEL}), "image_generation.completed")
    assert reader.read(named) is not None


@pytest.mark.parametrize(
    ("told", "total"),
    [
        ([100, 200, 300], 300),  # of the stream so far
        ([100, 100, 100], 300),  # of each image
        ([100, None, 100], 200),
        ([None, None, 100], 100),
    ],
)
def test_usage_of_several_images_covers_the_whole_stream(told: list[int | None], total: int) -> None:
    reader = ImageReader()
    last: ImageUsage | None = None
    for made in told:
        step = reader.read(event("completed", usage=usage(made) if made else None))
        assert step is not None
        last = step.usage
    assert last is not None
    assert last.output_tokens == total


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (Event(b'{"type":"error","error":{"message":"overloaded"}}', "error"), UpstreamOverloaded),
        (Event(b'{"error":{"code":"moderation_blocked"}}'), ContentFiltered),
        (Event(b'{"message":"odd"}', "error"), UpstreamError),
        (Event(b"{"), UpstreamInvalidResponse),
    ],
)
def test_error_events_are_raised(found: Event, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ImageReader().read(found)


async def streamed(reply: Reply, **fields: Any) -> list[ImageEvent]:
    link = Upstream()
    async with FakeUpstream() as fake:
        subject = OpenAIProvider(Options(base_url=fake.base_url), link)
        await subject.start()
        fake.enqueue(reply)
        try:
            return [step async for step in subject.stream_images(request(stream=True, **fields), TARGET)]
        finally:
            await link.close()


async def test_server_that_does_not_stream_gives_its_images_as_events() -> None:
    steps = await streamed(Reply.json({"data": [{"b64_json": PIXEL}] * 2, "usage": usage(5)}), n=2)
    assert [step.usage is not None for step in steps] == [False, True]


async def test_stream_that_ends_before_the_last_image_is_truncated() -> None:
    frame = b"data: " + event("completed").data + b"\n\n"
    with pytest.raises(UpstreamTruncated):
        await streamed(Reply(headers={"Content-Type": "text/event-stream"}, frames=[frame]), n=2)

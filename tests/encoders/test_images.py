"""Images from a provider that may be anybody's: what passes, what is refused, and what is charged."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from gateway.billing.usage import ImageCount
from gateway.encoders.images import MAX_PREVIEWS, ImageStreamEncoder, count_images, is_base64, validate
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.schemas.images import (
    GeneratedImage,
    ImageAnswer,
    ImageEvent,
    ImageRequest,
    ImageUsage,
    decode_image_request,
)
from gateway.testing.openai_dialect import PIXEL


def request(**fields: Any) -> ImageRequest:
    return decode_image_request(msgspec.json.encode({"model": "m", "prompt": "p", **fields}))


def test_image_stream_that_ends_early_is_truncated_for_any_provider() -> None:
    encoder = ImageStreamEncoder(request(n=2))
    encoder.feed(ImageEvent(PIXEL))
    with pytest.raises(UpstreamTruncated):
        encoder.close()
    encoder.feed(ImageEvent(PIXEL))
    assert encoder.close() == b""


@pytest.mark.parametrize(
    "item",
    [
        None,
        "image",
        ImageEvent(""),
        ImageEvent("%%%%"),
        ImageEvent(cast("Any", 7)),
        ImageEvent(PIXEL, cast("Any", "1")),
    ],
)
def test_invalid_event_is_refused(item: Any) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        ImageStreamEncoder(request()).feed(item)


def test_previews_without_end_are_refused() -> None:
    encoder = ImageStreamEncoder(request())
    for _ in range(MAX_PREVIEWS):
        assert encoder.feed(ImageEvent(PIXEL, 0))
    with pytest.raises(UpstreamInvalidResponse):
        encoder.feed(ImageEvent(PIXEL, 0))


def test_finished_images_are_not_kept_in_memory() -> None:
    encoder = ImageStreamEncoder(request())
    encoder.feed(ImageEvent("A" * (1 << 20)))
    assert len(encoder.images[0].b64_json) < 8192


@pytest.mark.parametrize("odd", [ImageUsage(-1, 5, 4), ImageUsage(10**18, 5), ImageUsage("1", 2), "usage", {}])  # type: ignore[arg-type]
def test_impossible_usage_is_dropped(odd: Any) -> None:
    encoder = ImageStreamEncoder(request())
    encoder.feed(ImageEvent(PIXEL, usage=odd))
    assert encoder.usage is None


@pytest.mark.parametrize(
    "answer",
    [None, {}, ImageAnswer([]), ImageAnswer(None), ImageAnswer([None]), ImageAnswer([GeneratedImage(7)])],  # type: ignore[arg-type,list-item]
)
def test_unusable_answer_is_refused(answer: Any) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        validate(answer, request())


def test_address_must_be_http_or_https() -> None:
    asked = request(response_format="url")
    validate(ImageAnswer([GeneratedImage(url="https://images.invalid/1.png")]), asked)
    with pytest.raises(UpstreamInvalidResponse):
        validate(ImageAnswer([GeneratedImage(url="file:///etc/passwd")]), asked)


@pytest.mark.parametrize(
    ("text", "good"), [("QUJD", True), ("QQ==", True), ("", False), ("QUJ", False), ('Q"D=', False)]
)
def test_base64_is_checked_at_its_start_and_end(text: str, good: bool) -> None:
    assert is_base64(text) is good


@pytest.mark.parametrize(
    ("fields", "said", "charged"),
    [
        ({}, (None, None), ("1x1", "")),
        ({}, ("auto", "auto"), ("1x1", "")),
        ({}, ("512x512", "low"), ("512x512", "low")),
        ({"size": "8x8", "quality": "hd"}, ("512x512", "low"), ("8x8", "hd")),
        ({}, (7, ["x"]), ("1x1", "")),
    ],
)
def test_charged_size_and_quality_are_the_requested_ones_or_those_of_the_image(
    fields: Any, said: Any, charged: Any
) -> None:
    assert count_images([GeneratedImage(PIXEL)], request(**fields), *said) == ImageCount(1, *charged)

"""What a provider of images must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gateway.billing.usage import possible_usage
from gateway.encoders.images import ImageStreamEncoder, validate
from gateway.schemas.images import ImageAnswer, ImageEvent, ImageRequest, ImageUsage, decode_image_request
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, NotConcerned, Subject

T = TypeVar("T")


def image_question(**fields: Any) -> ImageRequest:
    """A request as the gateway would hand it to a provider."""
    return decode_image_request(msgspec.json.encode({"model": "public-name", "prompt": "a grey heron", **fields}))


async def images_are_sound(subject: Subject) -> None:
    """Base64 that decodes, and possible usage."""
    answer = await _sound(subject, image_question())
    assert len(answer.data) == 1, f"{len(answer.data)} images instead of one"
    for image in answer.data:
        binascii.a2b_base64(str(image.b64_json), strict_mode=True)
    if answer.usage is not None:
        assert possible_usage(answer.usage, ImageUsage) is not None, f"usage is {answer.usage!r}"


async def number_of_images_is_honoured(subject: Subject) -> None:
    """As many images as were asked for, where the provider says it honours that."""
    honoured = subject.images.image_fields
    if honoured is not None and "n" not in honoured:
        raise NotConcerned("`image_fields` does not name n")
    answer = await _sound(subject, image_question(n=3))
    assert len(answer.data) == 3, f"{len(answer.data)} images instead of 3"


async def image_stream_is_sound(subject: Subject) -> None:
    """Previews first, then the image; the same as a whole answer where there is no better way."""
    request = image_question(stream=True, partial_images=1)
    encoder = ImageStreamEncoder(request)
    for event in await _stream(subject, request):
        assert not encoder.images, "the stream went on after its only image"
        _judged(encoder.feed, event)
    _judged(encoder.close)


async def image_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = image_question(n=1)
    call = subject.images.generate_images(request, subject.target)
    await whole_call_cases.assert_unchanged(request, call, "prompt")


async def image_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls."""
    for answer in await asyncio.gather(*(_sound(subject, image_question(prompt=f"heron {n}")) for n in range(8))):
        assert len(answer.data) == 1, "a call got another one's images"


async def cut_image_stream_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its image, cleanly or not, raises."""
    request = image_question(stream=True, partial_images=1)
    await whole_call_cases.assert_cut_is_an_error(subject, lambda one: _stream(one, request), "cut", "whole")


async def _sound(subject: Subject, request: ImageRequest) -> ImageAnswer:
    return _judged(validate, await subject.images.generate_images(request, subject.target), request)


async def _stream(subject: Subject, request: ImageRequest) -> list[ImageEvent]:
    return [event async for event in subject.images.stream_images(request, subject.target)]


def _judged(judgement: Callable[..., T], *words: Any) -> T:
    try:
        return judgement(*words)
    except Exception as error:
        # The kit judges whatever a third party's code returns.
        raise AssertionError(f"the answer is none: {getattr(error, 'detail', None) or error}") from error


async def _call(subject: Subject, target: Any) -> object:
    return await subject.images.generate_images(image_question(), target)


CASES: tuple[Case, ...] = (
    images_are_sound,
    number_of_images_is_honoured,
    image_stream_is_sound,
    image_request_is_left_as_it_was,
    image_calls_at_once_do_not_mix,
    *whole_call_cases.local_cases("images", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = (
    *whole_call_cases.upstream_cases("images", _call),
    cut_image_stream_never_looks_whole,
)

"""What a provider of edits must do; one public function per case, each named after what it proves."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

from gateway.encoders.images import ImageStreamEncoder, validate
from gateway.plugins.provider import ImageEdit
from gateway.schemas.images import ImageAnswer, ImageEditRequest, ImageEvent, decode_image_edit
from gateway.testing import whole_call_cases
from gateway.testing.subject import Case, NotConcerned, Subject

T = TypeVar("T")
PIXEL = binascii.a2b_base64(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNoaGgAAAMEAYFL09IQAAAAAElFTkSuQmCC"
)


class RecordedImage:
    """A PNG, as the gateway hands an uploaded one to a provider; `reads` counts how often it was read."""

    def __init__(self, name: str = "image", data: bytes = PIXEL) -> None:
        self.name = name
        self.filename = f"{name}.png"
        self.media_type = "image/png"
        self.size = len(data)
        self.reads = 0
        self._data = data

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes in two pieces."""
        self.reads += 1
        half = self.size // 2
        for piece in (self._data[:half], self._data[half:]):
            yield piece


def edit_question(*files: RecordedImage, **fields: str) -> ImageEditRequest:
    """A request as the gateway would hand it to a provider."""
    texts = {"model": "public-name", "prompt": "a grey heron", **fields}
    return decode_image_edit([*texts.items()], files or (RecordedImage(),))


async def edits_are_sound(subject: Subject) -> None:
    """Base64 that decodes, of one image and of several with a mask."""
    for files in ((RecordedImage(),), (RecordedImage(), RecordedImage(), RecordedImage("mask"))):
        answer = await _sound(subject, edit_question(*files))
        assert len(answer.data) == 1, f"{len(answer.data)} images instead of one"
        for image in answer.data:
            binascii.a2b_base64(str(image.b64_json), strict_mode=True)


async def each_file_is_read(subject: Subject) -> None:
    """Every image is read, and again by a second attempt."""
    files = RecordedImage(), RecordedImage(), RecordedImage("mask")
    request = edit_question(*files)
    for attempt in (1, 2):
        await _sound(subject, request)
        assert all(file.reads == attempt for file in files), "an image was not read, or not from its start again"


async def number_of_edits_is_honoured(subject: Subject) -> None:
    """As many images as were asked for, where the provider says it honours that."""
    honoured = _provider(subject).image_edit_fields
    if honoured is not None and "n" not in honoured:
        raise NotConcerned("`image_edit_fields` does not name n")
    answer = await _sound(subject, edit_question(n="3"))
    assert len(answer.data) == 3, f"{len(answer.data)} images instead of 3"


async def edit_stream_is_sound(subject: Subject) -> None:
    """Previews first, then the image; the same as a whole answer where there is no better way."""
    request = edit_question(stream="true", partial_images="1")
    encoder = ImageStreamEncoder(request)
    for event in await _stream(subject, request):
        assert not encoder.images, "the stream went on after its only image"
        _judged(encoder.feed, event)
    _judged(encoder.close)


async def edit_request_is_left_as_it_was(subject: Subject) -> None:
    """Another attempt may use the same request, so a provider copies what it changes."""
    request = edit_question(n="1")
    await whole_call_cases.assert_unchanged(request, _provider(subject).edit_images(request, subject.target), "prompt")


async def edit_calls_at_once_do_not_mix(subject: Subject) -> None:
    """One instance serves many calls."""
    calls = (_sound(subject, edit_question(prompt=f"heron {n}")) for n in range(8))  # a number in the case
    for answer in await asyncio.gather(*calls):
        assert len(answer.data) == 1, "a call got another one's images"


async def cut_edit_stream_never_looks_whole(subject: Subject) -> None:
    """A stream that ends before its image, cleanly or not, raises."""
    request = edit_question(stream="true", partial_images="1")
    await whole_call_cases.assert_cut_is_an_error(subject, lambda one: _stream(one, request), "cut", "whole")


async def _sound(subject: Subject, request: ImageEditRequest) -> ImageAnswer:
    return _judged(validate, await _provider(subject).edit_images(request, subject.target), request)


async def _stream(subject: Subject, request: ImageEditRequest) -> list[ImageEvent]:
    return [event async for event in _provider(subject).stream_edits(request, subject.target)]


def _provider(subject: Subject) -> ImageEdit:
    return cast("ImageEdit", subject.provider)


def _judged(judgement: Callable[..., T], *words: Any) -> T:
    try:
        return judgement(*words)
    except Exception as error:
        # The kit judges whatever a third party's code returns.
        raise AssertionError(f"the answer is none: {getattr(error, 'detail', None) or error}") from error


async def _call(subject: Subject, target: Any) -> object:
    return await _provider(subject).edit_images(edit_question(), target)


CASES: tuple[Case, ...] = (
    edits_are_sound,
    each_file_is_read,
    number_of_edits_is_honoured,
    edit_stream_is_sound,
    edit_request_is_left_as_it_was,
    edit_calls_at_once_do_not_mix,
    *whole_call_cases.local_cases("image_edit", _call),
)
UPSTREAM_CASES: tuple[Case, ...] = (
    *whole_call_cases.upstream_cases("image_edit", _call),
    cut_edit_stream_never_looks_whole,
)

"""Validates generated images, encodes them as one document or as named events, and counts them for the charge.

`validate` checks a provider's answer. `write_answer` makes the JSON body. `ImageStreamEncoder` makes the frames of a
stream (docs/api.md): previews, a `completed` event for each image, no end marker. Sharp edge: the charge never includes
more images than were requested, nor an image that was not delivered.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TypeGuard

import msgspec
from msgspec import UNSET

from gateway.billing.delivered import Delivered
from gateway.billing.media_size import image_size
from gateway.billing.usage import ImageCount, possible_usage
from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamTruncated
from gateway.schemas.images import GeneratedImage, ImageAnswer, ImageEvent, ImageRequest, ImageUsage

HEAD = 4096  # base64 characters of a finished image that are kept: its size is in them
MAX_PREVIEWS = 64  # most previews of one stream

_encoder = msgspec.json.Encoder()
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def validate(answer: ImageAnswer, request: ImageRequest) -> ImageAnswer:
    """The answer with at most the requested images; raises UpstreamInvalidResponse if it has no image at all.

    The upstream made the images and charges for them. So each is given in the form in which it came, if that is not
    the requested one.
    """
    if not isinstance(answer, ImageAnswer) or not isinstance(answer.data, list) or not answer.data:
        raise UpstreamInvalidResponse(detail=f"{type(answer).__name__} without images")
    images = [_in_one_form(image, request) for image in answer.data]
    answer.data = [image for image in images if image is not None][: request.count]
    if not answer.data:
        raise UpstreamInvalidResponse(detail="an answer whose images are neither base64 nor addresses")
    return answer


def _in_one_form(image: object, request: ImageRequest) -> GeneratedImage | None:
    """The image as base64 or as an address: the requested form if it has both; None if it has none."""
    if not isinstance(image, GeneratedImage):
        raise UpstreamInvalidResponse(detail=f"{type(image).__name__} instead of a GeneratedImage")
    data = _base64_of(image.b64_json) or _base64_of(image.url)
    url = image.url if _is_writable(image.url) and image.url.startswith(("https://", "http://")) else ""
    if url and (request.wants_urls or not data):
        return GeneratedImage(url=url, revised_prompt=image.revised_prompt)
    return GeneratedImage(b64_json=data, revised_prompt=image.revised_prompt) if data else None


def _base64_of(text: object) -> str:
    """The base64 of a text, which may be a data URL; empty for any other value."""
    if isinstance(text, str) and text.startswith("data:"):
        text = text.partition(";base64,")[2]
    return text if is_base64(text) else ""


def other_form(answer: ImageAnswer, request: ImageRequest) -> str:
    """The form of the images, if one has another form than the requested one; else empty."""
    if request.wants_urls:
        return "b64_json" if any(image.b64_json is not UNSET for image in answer.data) else ""
    return "url" if any(image.url is not UNSET for image in answer.data) else ""


def is_base64(text: object) -> TypeGuard[str]:
    """Whether a text looks like base64; only its two ends are checked, because it may have megabytes."""
    if not isinstance(text, str) or len(text) % 4 or not text.isascii():
        return False
    return _BASE64.fullmatch(text[:64] if len(text) <= 64 else text[:64] + text[-64:]) is not None


def count_images(
    images: Sequence[GeneratedImage | ImageEvent], request: ImageRequest, size: object, quality: object
) -> ImageCount:
    """The size and quality for the charge: the requested ones, else those of the images."""
    real = request.exact_size or _text(size, "auto") or (_measured(images[0].b64_json) if images else "")
    return ImageCount(len(images), real, request.exact_quality or _text(quality, "auto"))


def write_answer(answer: ImageAnswer, request: ImageRequest, usage: ImageUsage | None) -> bytes:
    """The whole body."""
    document = {
        "created": int(time.time()),
        "data": [_shown(image) for image in answer.data],
        **{name: value for name, value in _properties(answer, request).items() if value},
    }
    if usage is not None:
        document["usage"] = usage
    return _encoder.encode(document)


class ImageStreamEncoder:
    """The frames of one stream; `kind` begins the names of its events."""

    def __init__(self, request: ImageRequest, kind: str = "image_generation") -> None:
        self._request = request
        self._kind = kind
        self.images: list[ImageEvent] = []  # finished ones
        self.previews = 0
        self.under_way = False  # a preview was encoded of an image that is not finished
        self.delivered = Delivered()
        self.usage: ImageUsage | None = None  # of the whole stream so far

    @property
    def content_started(self) -> bool:
        return bool(self.previews or self.images)

    def feed(self, item: ImageEvent) -> bytes:
        if not isinstance(item, ImageEvent) or not (is_base64(item.b64_json) or _is_address(item)):
            if isinstance(item, ImageEvent) and item.partial_index is not None:
                return b""  # the finished image does not depend on its previews
            raise UpstreamInvalidResponse(detail=f"{type(item).__name__} without an image")
        if item.partial_index is not None:
            self.previews += 1
            self.under_way = True
            if self.previews > MAX_PREVIEWS or not isinstance(item.partial_index, int):
                raise UpstreamInvalidResponse(detail="too many previews, or an invalid one")
            return self._frame(f"{self._kind}.partial_image", item, {"partial_image_index": item.partial_index})
        if len(self.images) == self._request.count:
            return b""  # more images than were requested
        self.usage = possible_usage(item.usage, ImageUsage) or self.usage
        frame = self._frame(f"{self._kind}.completed", item, {"usage": self.usage or ImageUsage()})
        self.delivered.images += 1
        self.under_way = False
        self.images.append(msgspec.structs.replace(item, b64_json=item.b64_json[:HEAD]))
        return frame

    def close(self) -> bytes:
        if len(self.images) < self._request.count:
            raise UpstreamTruncated(detail=f"{len(self.images)} of {self._request.count} images")
        return b""

    def _frame(self, name: str, event: ImageEvent, own: dict[str, object]) -> bytes:
        """A frame with the fields of every event, and the event's own."""
        properties = {key: value or "auto" for key, value in _properties(event, self._request).items()}
        if event.url:  # a server that does not stream gave only an address
            properties["url"] = event.url
        document = {"type": name, "b64_json": event.b64_json, "created_at": int(time.time()), **properties, **own}
        return named_frame(name, _encoder.encode(document))


def error_event(error: GatewayError) -> bytes:
    """The frame of an error inside a stream; clients read the nested `error`."""
    return named_frame("error", _encoder.encode({"type": "error", **error.envelope()}))


def named_frame(name: str, payload: bytes) -> bytes:
    """One event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)


def _properties(answer: ImageAnswer | ImageEvent, request: ImageRequest) -> dict[str, str]:
    """The properties of the images, from the answer or from the request."""
    return {
        "size": _text(answer.size) or request.size or "",
        "quality": _text(answer.quality) or request.quality or "",
        "background": _text(answer.background) or request.background or "",
        "output_format": _text(answer.output_format) or request.format,
    }


def _shown(image: GeneratedImage) -> GeneratedImage:
    prompt = image.revised_prompt if _is_writable(image.revised_prompt) else UNSET
    return GeneratedImage(image.b64_json, image.url, prompt)


def _text(value: object, *nothing: str) -> str:
    """A short text of a provider; empty for any other value."""
    return value if _is_writable(value) and len(value) <= 64 and value not in nothing else ""


def _is_writable(value: object) -> TypeGuard[str]:
    """Whether this is a text that can be encoded as JSON; a lone surrogate cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_address(event: ImageEvent) -> bool:
    """Whether a finished image is an address, without its bytes."""
    finished = event.partial_index is None and event.b64_json == ""
    return finished and _is_writable(event.url) and event.url.startswith(("https://", "http://"))


def _measured(data: object) -> str:
    size = image_size(f"data:image/*;base64,{data}") if isinstance(data, str) else None
    return "" if size is None else f"{size[0]}x{size[1]}"

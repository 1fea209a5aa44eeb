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
    """The answer with at most the requested images; raises UpstreamInvalidResponse if it is invalid."""
    if not isinstance(answer, ImageAnswer) or not isinstance(answer.data, list) or not answer.data:
        raise UpstreamInvalidResponse(detail=f"{type(answer).__name__} without images")
    del answer.data[request.count :]
    for image in answer.data:
        if not isinstance(image, GeneratedImage):
            raise UpstreamInvalidResponse(detail=f"{type(image).__name__} instead of a GeneratedImage")
        if request.wants_urls:
            if not _is_writable(image.url) or not image.url.startswith(("https://", "http://")):
                raise UpstreamInvalidResponse(detail="an image without the requested URL")
        elif not is_base64(image.b64_json):
            raise UpstreamInvalidResponse(detail="an image that is not base64")
    return answer


def is_base64(text: object) -> bool:
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
        "data": [_shown(image, request) for image in answer.data],
        **{name: value for name, value in _properties(answer, request).items() if value},
    }
    if usage is not None:
        document["usage"] = usage
    return _encoder.encode(document)


class ImageStreamEncoder:
    """The frames of one stream."""

    def __init__(self, request: ImageRequest) -> None:
        self._request = request
        self.images: list[ImageEvent] = []  # finished ones
        self.previews = 0
        self.under_way = False  # a preview was encoded of an image that is not finished
        self.delivered = Delivered()
        self.usage: ImageUsage | None = None  # of the whole stream so far

    @property
    def content_started(self) -> bool:
        return bool(self.previews or self.images)

    def feed(self, item: ImageEvent) -> bytes:
        if not isinstance(item, ImageEvent) or not is_base64(item.b64_json):
            raise UpstreamInvalidResponse(detail=f"{type(item).__name__} without an image")
        if item.partial_index is not None:
            self.previews += 1
            self.under_way = True
            if self.previews > MAX_PREVIEWS or not isinstance(item.partial_index, int):
                raise UpstreamInvalidResponse(detail="too many previews, or an invalid one")
            return self._frame("image_generation.partial_image", item, {"partial_image_index": item.partial_index})
        if len(self.images) == self._request.count:
            return b""  # more images than were requested
        self.usage = possible_usage(item.usage, ImageUsage) or self.usage
        frame = self._frame("image_generation.completed", item, {"usage": self.usage or ImageUsage()})
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


def _shown(image: GeneratedImage, request: ImageRequest) -> GeneratedImage:
    prompt = image.revised_prompt if _is_writable(image.revised_prompt) else UNSET
    if request.wants_urls:
        return GeneratedImage(url=image.url, revised_prompt=prompt)
    return GeneratedImage(b64_json=image.b64_json, revised_prompt=prompt)


def _text(value: object, *nothing: str) -> str:
    """A short text of a provider; empty for any other value."""
    return value if _is_writable(value) and len(value) <= 64 and value not in nothing else ""


def _is_writable(value: object) -> TypeGuard[str]:
    """Whether this is a text that can be encoded as JSON; half of a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _measured(data: object) -> str:
    size = image_size(f"data:image/*;base64,{data}") if isinstance(data, str) else None
    return "" if size is None else f"{size[0]}x{size[1]}"

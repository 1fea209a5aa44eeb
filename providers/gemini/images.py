"""Images: one `generateContent` for each, with a ratio and a resolution class out of the caller's pixels.

Sharp edge: Gemini makes images of its own sizes near what was asked, and says only the media type of what it made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway import GeneratedImage, ImageRequest, ImageUsage
from gateway.errors import ContentFiltered, UnsupportedValue, UpstreamInvalidResponse
from gateway.schemas.images import TokenKinds

from .._shared.image_usage import add_usage
from .finish import FILTERED
from .wire import Blob, WireAnswer

RATIOS: Mapping[str, float] = {
    "1:1": 1.0,
    "2:3": 2 / 3,
    "3:2": 3 / 2,
    "3:4": 3 / 4,
    "4:3": 4 / 3,
    "4:5": 4 / 5,
    "5:4": 5 / 4,
    "9:16": 9 / 16,
    "16:9": 16 / 9,
    "21:9": 21 / 9,
}
NEAR = 0.03  # of a ratio, within which it counts as asked for: 1792x1024 is meant as 16:9
# Pixels up to which a resolution class serves, least first; 1K is every model's default, and the only one of some.
CLASSES = ((1_600_000, ""), (6_400_000, "2K"), (25_200_000, "4K"))

_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}
_encoder = msgspec.json.Encoder()


def image_body(request: ImageRequest, *, safety: Sequence[Mapping[str, str]], vertex: bool) -> bytes:
    """The JSON for one image; raises BadRequest errors for a size or format that Gemini cannot make."""
    if request.response_format == "url":
        raise UnsupportedValue("This model returns images themselves; ask for 'b64_json'.", param="response_format")
    config = _size(request.size)
    if request.output_format is not None:
        config.update(_format(request.output_format, vertex=vertex))
    body: dict[str, Any] = {
        "contents": [{"role": "user", "parts": [{"text": request.prompt}]}],
        "generationConfig": {"responseModalities": ["TEXT", "IMAGE"], **({"imageConfig": config} if config else {})},
    }
    if safety:
        body["safetySettings"] = safety
    return _encoder.encode(body)


def _size(size: str | None) -> dict[str, Any]:
    if size is None or size == "auto":
        return {}
    width, height = (int(side) for side in size.split("x"))
    name, ratio = min(RATIOS.items(), key=lambda item: abs(item[1] - width / height))
    if abs(ratio - width / height) > NEAR * ratio:
        raise UnsupportedValue(f"This model makes images of the ratios {', '.join(RATIOS)}.", param="size")
    for pixels, resolution in CLASSES:
        if width * height <= pixels:
            return {"aspectRatio": name, **({"imageSize": resolution} if resolution else {})}
    raise UnsupportedValue("This model makes images of at most 4096x4096.", param="size")


def _format(wanted: str, *, vertex: bool) -> dict[str, Any]:
    if wanted not in _TYPES or not (vertex or wanted == "png"):
        fits = "'png' and 'jpeg'" if vertex else "'png'"
        raise UnsupportedValue(f"This model makes {fits} only.", param="output_format")
    return {"imageOutputOptions": {"mimeType": _TYPES[wanted]}} if vertex else {}


def read_image(answer: WireAnswer) -> Blob:
    """The finished image of an answer; drafts among its thoughts do not count.

    Raises ContentFiltered with the image endpoint's own code where Gemini would not draw.
    """
    candidates = answer.candidates or []
    for candidate in candidates:
        for part in candidate.parts:
            blob = part.inline_data
            if (
                blob is not None
                and not part.thought
                and blob.data
                and (not blob.mime_type or blob.mime_type.startswith("image/"))
            ):
                return blob
    reasons = {candidate.finish_reason for candidate in candidates}
    if answer.block_reason is not None or reasons & (FILTERED | {"NO_IMAGE"}):
        raise ContentFiltered(code="content_policy_violation", param="prompt", detail=f"finish reasons {reasons}")
    raise UpstreamInvalidResponse(detail=f"an answer without an image, finish reasons {reasons}")


def generated(blob: Blob) -> GeneratedImage:
    """The image as the wire wants it."""
    return GeneratedImage(b64_json=blob.data)


def added(usages: Sequence[ImageUsage | None]) -> ImageUsage | None:
    """The usage of several calls together; None unless all are known."""
    total = ImageUsage(output_tokens_details=TokenKinds())
    for usage in usages:
        if usage is None:
            return None
        add_usage(total, usage)
    return total

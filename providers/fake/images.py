"""Made-up images: small PNGs of one colour, which the prompt decides, and paler ones as previews."""

from __future__ import annotations

import hashlib
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator

from msgspec import structs

from gateway import GeneratedImage, ImageAnswer, ImageEditRequest, ImageEvent, ImageRequest, ImageUsage

from .script import Script

SIDE = 8  # pixels; whatever size is asked for, nobody wants megabytes of nothing
TOKENS = 100  # of each image


def image_answer(request: ImageRequest, script: Script) -> ImageAnswer:
    """As many images as were asked for."""
    data = []
    for number in range(request.count):
        image = GeneratedImage(revised_prompt=f"{request.prompt} (made up)")
        if request.wants_urls:
            image.url = f"https://images.invalid/{_digest(request, number).hex()[:16]}.png"
        else:
            image.b64_json = _image(request, number)
        data.append(image)
    return ImageAnswer(data, _usage(request, script, request.count), *_said(request))


def image_events(request: ImageRequest, script: Script) -> Iterator[ImageEvent]:
    """Previews and the finished image, one after the other; usage grows with each."""
    for number in range(request.count):
        for preview in range(request.partial_images or 0):
            yield ImageEvent(_image(request, number, fade=3 - preview), preview, None, *_said(request))
        yield ImageEvent(_image(request, number), None, _usage(request, script, number + 1), *_said(request))


async def edited(request: ImageEditRequest) -> ImageRequest:
    """A request for images whose prompt names the content of the given ones."""
    digest = hashlib.sha256()
    for file in request.files:
        async for piece in file.chunks():
            digest.update(piece)
    prompt = f"{request.prompt or 'a variation'} of {digest.hexdigest()[:8]}"
    return structs.replace(request, prompt=prompt)


def png(colour: tuple[int, int, int], side: int = SIDE) -> bytes:
    """A square of one colour."""
    rows = (b"\0" + bytes(colour) * side) * side  # each row begins with its filter: none
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _digest(request: ImageRequest, number: int) -> bytes:
    return hashlib.sha256(f"{request.prompt} {number}".encode()).digest()


def _image(request: ImageRequest, number: int, *, fade: int = 0) -> str:
    red, green, blue = ((part + 255 * fade) // (fade + 1) for part in _digest(request, number)[:3])
    return b64encode(png((red, green, blue))).decode()


def _said(request: ImageRequest) -> tuple[str, str, str, str]:
    """Size, quality, background and format; what it is free to choose, it chooses."""
    background = request.background if request.background not in (None, "auto") else "opaque"
    return request.exact_size or "1024x1024", request.exact_quality or "low", str(background), "png"


def _usage(request: ImageRequest, script: Script, images: int) -> ImageUsage | None:
    if script.usage == "none":
        return None
    prompt, made = len(request.prompt.split()) or 1, TOKENS * images
    usage = ImageUsage(prompt, made, prompt + made)
    usage.input_tokens_details.text_tokens = prompt
    wrong = script.wrong(made)
    if wrong is not None:
        usage.input_tokens = usage.output_tokens = usage.total_tokens = wrong
    return usage

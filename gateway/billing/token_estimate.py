"""Estimates of a request's tokens before the upstream has counted them (docs/prices.md, "Estimates").

Estimates are used for holds, for token-rate limits, and for the bill if an upstream reports no usage. They are rather
too high than too low: the rest of a hold is released, but a hold that is too small may not cover the cost.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.billing.media_size import audio_seconds, image_size
from gateway.billing.usage import text_units, tokens_of
from gateway.schemas.chat_messages import AssistantMessage, ToolMessage
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.embeddings import EmbeddingRequest

PER_MESSAGE = 3
PER_NAME = 1
AT_END = 3
PER_TOOL = 8
TOOLS = 12
IMAGE = 1100  # an image of unknown size
LOW_DETAIL_IMAGE = 85
PER_TILE = 170  # of 512 by 512 pixels, in high detail
AUDIO_PER_SECOND = 10
SPOKEN_PER_SECOND = 15  # letters
UNKNOWN_AUDIO_RATE = 8_000  # bytes per second of a sound without a known header: 64 kbit/s
FILE_BASE64_PER_TOKEN = 4  # a token per 3 bytes
MEGAPIXEL = 1024 * 1024
LARGEST_USUAL_IMAGE = 1536, 1024
MADE_IMAGE = {
    "low": 500,
    "medium": 2_000,
    "standard": 2_000,
    "": 8_000,
    "high": 8_000,
    "hd": 8_000,
    "xhigh": 16_000,
    "max": 32_000,
}
PREVIEW = 100  # tokens of a preview
LOOKED_AT = 64  # media parts whose header is read; a body may hold half a million of them
SAFETY = 5, 4  # a hold is the estimate times 5/4


class PromptEstimate(Struct, frozen=True):
    """Estimated tokens of a prompt by kind, and the number of its media parts, whose true count may differ a lot."""

    text: int
    image: int = 0
    audio: int = 0
    media: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of all kinds."""
        return self.text + self.image + self.audio


def chat_prompt(request: ChatRequest, *, factor: float = 1.0) -> PromptEstimate:
    """The prompt of a chat request; text is multiplied by the model family's factor.

    Four messages of 1 KB take 1.2 µs. The slowest 32 MiB bodies found: 0.19 s for a million empty parts, whose decoding
    takes longer, and 0.07 s for ten million CJK characters or for 240,000 images.
    """
    units, tokens = 0, AT_END
    parts: _Parts | None = None
    for message in request.messages:
        tokens += PER_MESSAGE
        content = message.content
        if isinstance(content, str):
            units += text_units(content)
        elif content:
            parts = parts or _Parts()
            for part in content:
                units += parts.add(part)
        kind = type(message)
        if kind is not ToolMessage and message.name:  # type: ignore[union-attr]  # the only kind without a name
            tokens += PER_NAME
        if kind is AssistantMessage:
            for call in message.tool_calls or ():  # type: ignore[union-attr]  # as above
                units += _call_units(call)
    tools = request.fields.get("tools")  # it contains legacy functions too
    if tools is not None:
        units += len(bytes(tools))
        tokens += TOOLS + PER_TOOL * len(request.as_tools)
    schema = request.fields.get("response_format")
    if schema is not None:
        units += len(bytes(schema))
    tokens += tokens_of(units, factor=factor)
    if parts is None:
        return PromptEstimate(tokens)
    return PromptEstimate(tokens + parts.document, parts.image, parts.audio, parts.media)


def embedding_tokens(request: EmbeddingRequest, *, factor: float = 1.0) -> list[int]:
    """Tokens of each input; exact for inputs that are token numbers."""
    return [
        tokens_of(text_units(entry), factor=factor) if isinstance(entry, str) else len(entry)
        for entry in request.inputs
    ]


class _Parts:
    """Adds up content parts."""

    def __init__(self) -> None:
        self.image = self.audio = self.document = self.media = 0

    def add(self, part: Any) -> int:
        """Count a part and return the quarter tokens of its text."""
        text = getattr(part, "text", None) or getattr(part, "refusal", None)
        if text:
            return text_units(text)
        image = getattr(part, "image_url", None)
        audio = getattr(part, "input_audio", None)
        file = getattr(part, "file", None)
        if image is not None:
            self.image += self._image(image)
        elif audio is not None:
            self.audio += self._audio(audio.data)
        elif file is not None and getattr(file, "file_data", None):
            self.document += len(file.file_data) // FILE_BASE64_PER_TOKEN + 1
        else:
            return 0
        self.media += 1
        return 0

    def _image(self, image: Any) -> int:
        if image.detail == "low":
            return LOW_DETAIL_IMAGE
        size = image_size(image.url) if self.media < LOOKED_AT else None
        return IMAGE if size is None else image_tokens(*size)

    def _audio(self, data: str) -> int:
        seconds = audio_seconds(data) if self.media < LOOKED_AT else None
        if seconds is None:
            seconds = len(data) * 0.75 / UNKNOWN_AUDIO_RATE
        return int(seconds * AUDIO_PER_SECOND) + 1


def speech_seconds(text: str, *, speed: float = 1.0) -> float:
    """Estimated seconds to speak `text`: 150 words of six letters a minute; a CJK character counts as four letters."""
    return text_units(text) / SPOKEN_PER_SECOND / speed


def made_image_tokens(size: str, quality: str) -> int:
    """The largest number of output tokens of one generated image; the model chooses a value that is empty.

    Published numbers for 1024x1024: 272, 1056 and 4160 (low, medium, high) for one generation of models, 7024 (high)
    for the next. Larger images have fewer tokens per pixel. Numbers above "high" are guesses; none are published.
    """
    width, height = map(int, size.split("x")) if size else LARGEST_USUAL_IMAGE
    per_megapixel = MADE_IMAGE.get(quality, MADE_IMAGE[""])
    return -(-per_megapixel * max(width * height, MEGAPIXEL) // MEGAPIXEL)


def image_tokens(width: int, height: int) -> int:
    """Tokens of an image in high detail: scaled to at most 2048 by 2048 and a short side of 768, then tiled."""
    longest = max(width, height)
    if longest > 2048:
        width, height = _scaled(width, 2048, longest), _scaled(height, 2048, longest)
    shortest = min(width, height)
    if shortest > 768:
        width, height = _scaled(width, 768, shortest), _scaled(height, 768, shortest)
    return LOW_DETAIL_IMAGE + PER_TILE * -(-width // 512) * -(-height // 512)


def _scaled(side: int, to: int, of: int) -> int:
    return max(1, side * to // of)


def with_safety(tokens: int) -> int:
    """The estimate with the safety margin of a hold."""
    return -(-tokens * SAFETY[0] // SAFETY[1])


def _call_units(call: Any) -> int:
    function = getattr(call, "function", None)
    if function is not None:
        return len(function.name or "") + len(function.arguments or "")
    return len(msgspec.json.encode(call))

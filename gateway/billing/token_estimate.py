"""Estimates of a request's tokens before the upstream has counted them (docs/prices.md, "Estimates").

Estimates are used for holds, for token-rate limits, and for the bill if an upstream reports no usage. They are rather
too high than too low: the rest of a hold is released, but a hold that is too small may not cover the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.billing.image_tokens import MediaRules, media_rules
from gateway.billing.media_size import audio_seconds, decoded, image_size
from gateway.billing.pdf_pages import InflateBudget, pdf_pages
from gateway.billing.usage import text_units, tokens_of
from gateway.schemas.chat_messages import AssistantMessage, AudioPart, FilePart, ImagePart, ImageURL, TextPart
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.embeddings import EmbeddingRequest

PER_TOOL = 8
TOOLS = 12
SPOKEN_PER_SECOND = 15  # letters
UNKNOWN_AUDIO_RATE = 8_000  # bytes per second of audio without a known header: 64 kbit/s
FILE_BASE64_PER_TOKEN = 4  # a token per 3 bytes
PER_PAGE = 1_500  # of a PDF
UNKNOWN_PAGE = 4_096  # bytes for each page of a PDF without any that is found
PDF, PDF_BASE64 = "data:application/pdf", "JVBERi0"  # "%PDF-"
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

# All bytes but those that begin a character of so many bytes: `translate` removes them at memory speed.
NOT_TWO_BYTE = bytes(byte for byte in range(256) if not 0xC0 <= byte <= 0xDF)
NOT_THREE_BYTE = bytes(byte for byte in range(256) if not 0xE0 <= byte <= 0xEF)
NOT_FOUR_BYTE = bytes(byte for byte in range(256) if not 0xF0 <= byte <= 0xF7)


class _EarlierImage(Struct):
    image_url: ImageURL


ANY_MODEL = media_rules(())
_earlier_images = msgspec.json.Decoder(list[_EarlierImage])


class PromptEstimate(Struct, frozen=True):
    """Estimated tokens of a prompt by kind, and the number of its media parts, whose true count may differ a lot."""

    text: int
    image: int = 0
    audio: int = 0
    media: int = 0
    document: int = 0  # the part of `text` that is documents

    @property
    def tokens(self) -> int:
        """The tokens of all kinds."""
        return self.text + self.image + self.audio


def chat_prompt(request: ChatRequest, *, factor: float = 1.0, rules: MediaRules = ANY_MODEL) -> PromptEstimate:
    """The prompt of a decoded chat request, for a model with this factor for text and these rules for media.

    All bytes that are no media are text.

    Four messages of 1 KB take 0.6 µs. The slowest 32 MiB bodies found: 0.19 s for a million empty parts, whose decoding
    takes longer, and 0.07 s for ten million CJK characters or for 240,000 images.
    """
    parts: _Parts | None = None
    wide: list[str] = []  # texts with other than ASCII characters
    for message in request.messages:
        content = message.content
        if type(content) is str:
            if not content.isascii():
                wide.append(content)
        elif content:
            parts = parts or _Parts(wide, rules)
            for part in content:
                parts.add(part)
        if type(message) is AssistantMessage and message.images is not UNSET:
            parts = parts or _Parts(wide, rules)
            parts.add_images(message.images)
    tools = request.as_tools
    tokens = TOOLS + PER_TOOL * len(tools) if tools else 0
    units = json_units(request.body, wide)
    if parts is None or not parts.media:
        return PromptEstimate(tokens + tokens_of(units, factor=factor))
    # Some clients write "/" in base64 as "\/".
    escapes = request.body.count(b"\\/") if b"\\" in request.body else 0  # most bodies with media have none
    units = max(0, units - parts.size - escapes)
    return PromptEstimate(
        tokens + tokens_of(units, factor=factor) + parts.document,
        parts.image,
        parts.audio,
        parts.media,
        parts.document,
    )


def json_units(body: bytes, wide: Sequence[str] = ()) -> int:
    """Quarter tokens of a JSON text: one for each byte, more for characters of three or four bytes.

    In a body of ASCII alone, the characters of the `wide` texts are escaped; they count as if they were not.
    """
    if not body.isascii():
        return len(body) + _count(body, NOT_THREE_BYTE) + 4 * _count(body, NOT_FOUR_BYTE)
    return len(body) - _escapes("".join(wide)) if wide else len(body)


def _escapes(text: str) -> int:
    """The bytes of the escapes in `text` less the quarter tokens of its characters: 6, 6 and 12 less 2, 4 and 8."""
    raw = text.encode("utf-8", "surrogatepass")
    return 4 * _count(raw, NOT_TWO_BYTE) + 2 * _count(raw, NOT_THREE_BYTE) + 4 * _count(raw, NOT_FOUR_BYTE)


def _count(raw: bytes, others: bytes) -> int:
    return len(raw.translate(None, others))


def embedding_tokens(request: EmbeddingRequest, *, factor: float = 1.0) -> list[int]:
    """Tokens of each input; exact for inputs that are token numbers."""
    return [
        tokens_of(text_units(entry), factor=factor) if isinstance(entry, str) else len(entry)
        for entry in request.inputs
    ]


class _Parts:
    """Adds up the media among content parts, and collects the texts with other than ASCII characters."""

    def __init__(self, wide: list[str], rules: MediaRules) -> None:
        self.image = self.audio = self.document = self.media = 0
        self.size = 0  # bytes of media in the body
        self._wide = wide
        self._rules = rules
        self._budget = InflateBudget()

    def add(self, part: Any) -> None:
        """Count a part if it is an image, audio or a document."""
        kind = type(part)
        if kind is TextPart:
            if not part.text.isascii():
                self._wide.append(part.text)
            return
        if kind is ImagePart:
            self._add_image(part.image_url)
        elif kind is AudioPart:
            self.audio += self._audio(part.input_audio.data)
            self._add_media(len(part.input_audio.data))
        elif kind is FilePart and part.file.file_data:
            self.document += self._document(part.file.file_data)
            self._add_media(len(part.file.file_data))

    def add_images(self, images: Raw) -> None:
        """Count the images of an earlier answer; what has no known form stays text."""
        try:
            found = _earlier_images.decode(images)
        except (msgspec.MsgspecError, RecursionError):
            return
        for image in found:
            self._add_image(image.image_url)

    def _add_image(self, image: ImageURL) -> None:
        if not image.url.startswith("data:"):
            self.image += self._rules.fetched(image.url, image.detail)
            self._add_media(0)
            return
        size = image_size(image.url) if self.media < LOOKED_AT else None
        self.image += self._rules.image(size, image.detail)
        self._add_media(len(image.url))

    def _add_media(self, size: int) -> None:
        self.media += 1
        self.size += size

    def _document(self, data: str) -> int:
        """Tokens of a document: by the pages of a PDF, else by its bytes."""
        start = data.find(",", 0, 128) + 1
        if not (data[:start].lower().startswith(PDF) or data.startswith(PDF_BASE64, start)):
            return len(data) // FILE_BASE64_PER_TOKEN + 1
        pages = self._pages(data, start) if self.media < LOOKED_AT else 0
        return PER_PAGE * (pages or -(-len(data) * 3 // 4 // UNKNOWN_PAGE))

    def _pages(self, data: str, start: int) -> int:
        """Pages of a PDF; only the beginning and the end of a large one are decoded, and page trees are there."""
        size = len(data) - start
        taken = self._budget.take_encoded(size)
        if taken == size:
            return pdf_pages(decoded(data, start), self._budget)
        half = taken // 8 * 4
        last = start + (size - half) // 4 * 4
        ends = decoded(data, start, half) + b"\n" + decoded(data, last)
        return pdf_pages(ends, self._budget, whole=False)

    def _audio(self, data: str) -> int:
        seconds = audio_seconds(data) if self.media < LOOKED_AT else None
        if seconds is None:
            seconds = len(data) * 0.75 / UNKNOWN_AUDIO_RATE
        return int(seconds * self._rules.audio) + 1


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


def with_safety(tokens: int) -> int:
    """The estimate with the safety margin of a hold."""
    return -(-tokens * SAFETY[0] // SAFETY[1])

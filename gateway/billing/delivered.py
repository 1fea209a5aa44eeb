"""The delivered part of an answer, by kind and unit. A call that is cut is charged for it."""

from __future__ import annotations

from msgspec import Struct

#: Tokens of audio and of an image of a megapixel in a chat answer, from published numbers.
AUDIO_PER_SECOND = 21
PER_IMAGE = 1290
QUARTERS_PER_TOKEN = 4


class Delivered(Struct):
    """Counters of one answer; an encoder increases them with each frame."""

    #: Text, reasoning and tool arguments, in quarters of an estimated token. Holds and checkpoints are in this unit, so
    #: the audio and the images of a chat answer are added here too, at their weights.
    text_quarter_tokens: int = 0
    reasoning_quarter_tokens: int = 0  # the part of `text_quarter_tokens` that is reasoning
    audio_ms: int = 0  # milliseconds of audio
    images: int = 0  # finished images
    audio_weight: float = 1.0  # tokens of text that cost as much as a token of audio
    image_weight: float = 1.0

    def add_media(self, *, audio_ms: int = 0, images: int = 0) -> None:
        """Add audio or images of a chat answer."""
        before = self.media_quarter_tokens
        self.audio_ms += audio_ms
        self.images += images
        self.text_quarter_tokens += self.media_quarter_tokens - before

    @property
    def audio_tokens(self) -> int:
        """The estimated tokens of the audio of a chat answer."""
        return self.audio_ms * AUDIO_PER_SECOND // 1000

    @property
    def image_tokens(self) -> int:
        """The estimated tokens of the images of a chat answer."""
        return self.images * PER_IMAGE

    @property
    def media_quarter_tokens(self) -> int:
        """The part of `text_quarter_tokens` that is audio and images, at their weights."""
        weighted = self.audio_tokens * self.audio_weight + self.image_tokens * self.image_weight
        return int(QUARTERS_PER_TOKEN * weighted)

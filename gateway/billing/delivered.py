"""What of an answer has been delivered, by kind and unit: what a cut call is charged by."""

from __future__ import annotations

from msgspec import Struct


class Delivered(Struct):
    """Counters of one answer; an encoder raises them as it makes frames."""

    text_quarter_tokens: int = 0  # text, reasoning and tool arguments, in quarters of an estimated token
    audio_ms: int = 0  # milliseconds of sound
    images: int = 0  # finished images

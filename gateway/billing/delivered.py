"""The delivered part of an answer, by kind and unit. A call that is cut is charged for it."""

from __future__ import annotations

from msgspec import Struct


class Delivered(Struct):
    """Counters of one answer; an encoder increases them with each frame."""

    text_quarter_tokens: int = 0  # text, reasoning and tool arguments, in quarters of an estimated token
    reasoning_quarter_tokens: int = 0  # the part of `text_quarter_tokens` that is reasoning
    audio_ms: int = 0  # milliseconds of sound
    images: int = 0  # finished images

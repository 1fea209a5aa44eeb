"""Gemini's sound: raw PCM at 24 kHz, 16-bit little-endian, mono; and the header that makes a WAV of it."""

from __future__ import annotations

import base64
import binascii
import re
import struct

from gateway.errors import UpstreamInvalidResponse

from .wire import Blob

RATE = 24_000  # samples a second
_RATE = re.compile(r"rate=(\d+)")
_UNKNOWN = 0xFFFF_FFFF  # the length of what is still being made


def pcm(blob: Blob) -> bytes:
    """The samples in a part of an answer; UpstreamInvalidResponse when they are of another kind."""
    kind = blob.mime_type.lower().replace(" ", "")
    rate = _RATE.search(kind)
    if not kind.startswith(("audio/l16", "audio/pcm")) or (rate and int(rate[1]) != RATE):
        raise UpstreamInvalidResponse(detail=f"sound of type {blob.mime_type[:60]!r}")
    try:
        return base64.b64decode(blob.data, validate=True)
    except binascii.Error:
        raise UpstreamInvalidResponse(detail="sound that is not base64") from None


def wav_header(size: int | None = None) -> bytes:
    """The 44 bytes before `size` bytes of samples; without a size, those of a stream that ends when it ends."""
    data = _UNKNOWN if size is None else size
    riff = _UNKNOWN if size is None else size + 36
    form = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", riff, b"WAVE", b"fmt ", 16, 1, 1, RATE, RATE * 2, 2, 16)
    return form + struct.pack("<4sI", b"data", data)

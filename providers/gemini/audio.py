"""Gemini's audio: raw PCM at 24 kHz, 16-bit little-endian, mono; and the header that makes a WAV of it.

Sharp edge: servers that follow Google's dialect also send samples of another rate, or whole files.
"""

from __future__ import annotations

import re
import struct

from gateway import sound_format
from gateway.errors import UpstreamInvalidResponse

from .._shared.base64_text import base64_bytes
from .wire import Blob

RATE = 24_000  # samples a second
_RATE = re.compile(r"rate=(\d+)")
_WAV_START = b"RIFF"
_UNKNOWN = 0xFFFF_FFFF  # the length of what is still being made


def pcm(blob: Blob) -> bytes:
    """The samples in a part of an answer; UpstreamInvalidResponse when they are of another kind."""
    samples, rate = samples_of(blob)
    if rate != RATE:
        raise UpstreamInvalidResponse(detail=f"audio of type {blob.mime_type[:60]!r}")
    return samples


def samples_of(blob: Blob) -> tuple[bytes, int]:
    """The samples and their rate; the rate is 0 for a file of another format. UpstreamInvalidResponse for no audio."""
    audio = base64_bytes(blob.data)
    if audio is None:
        raise UpstreamInvalidResponse(detail="audio that is not base64")
    if audio.startswith(_WAV_START) and len(audio) >= len(wav_header()):
        rate = int.from_bytes(audio[24:28], "little")
        if audio[:44] == wav_header(int.from_bytes(audio[40:44], "little"), rate=rate):
            return audio[44:], rate
    kind = blob.mime_type.lower().replace(" ", "")
    if kind.startswith(("audio/l16", "audio/pcm")):
        named = _RATE.search(kind)
        return audio, int(named[1][:6]) if named else RATE
    if sound_format(audio):
        return audio, 0
    raise UpstreamInvalidResponse(detail=f"audio of type {blob.mime_type[:60]!r}")


def wav_header(size: int | None = None, *, rate: int = RATE) -> bytes:
    """The 44 bytes before `size` bytes of samples; without a size, those of a stream that ends when it ends."""
    data = _UNKNOWN if size is None else size
    riff = _UNKNOWN if size is None or size > _UNKNOWN - 36 else size + 36
    form = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", riff, b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    return form + struct.pack("<4sI", b"data", data)

"""The size of an image or the length of audio, from the first bytes of its base64. Nothing is fetched.

`image_size(url)` and `audio_seconds(audio)` return None if the header does not contain the value; the caller then
estimates it. Both read a bounded prefix, so they take microseconds for a body of any size. Sharp edge: the values come
from the caller's own bytes. They are used for estimates, never for bills.
"""

from __future__ import annotations

import binascii
from base64 import b64decode

HEADER = 256  # base64 characters that hold the size of a PNG, GIF or WebP, and the format of a WAV
JPEG_HEADER = 131_072  # a JPEG's size may come after a colour profile and a preview
MAX_SEGMENTS = 64
SLOWEST, FASTEST = 2_000, 768_000  # limits of the byte rate of audio: 16 kbit/s to 96 kHz in 32-bit stereo
WAV_FORMAT = 26  # bytes of a WAV's format chunk that decide its byte rate
FASTEST_COMPRESSED = 48_000  # bytes per second of a WAV that is no PCM: ADPCM in 48 kHz stereo
PCM = frozenset({1, 3, 6, 7})  # integers, floats, A-law and mu-law: blocks of one sample for each channel
EXTENSIBLE = 0xFFFE  # the format stands further behind

#: Kbit/s of the MP3 frames of MPEG 1, and of MPEG 2 and 2.5, layer III.
MP3_KBITS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)


def image_size(url: str) -> tuple[int, int] | None:
    """Width and height of a data URL's PNG, JPEG, GIF or WebP."""
    start = url.find(",", 0, 128) + 1
    if not start or not url.startswith("data:"):
        return None
    head = decoded(url, start, HEADER)
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return _positive(_big(head, 16, 4), _big(head, 20, 4))
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _positive(_little(head, 6, 2), _little(head, 8, 2))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head) or (_jpeg(decoded(url, start, JPEG_HEADER)) if len(head) > HEADER // 2 else None)
    return None


def audio_seconds(data: str) -> float | None:
    """Seconds of audio in base64 WAV or MP3, from the format in its header."""
    head = decoded(data, 0, HEADER)
    rate = None
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        format_at = head.find(b"fmt ", 12)
        rate = wav_rate(head[format_at + 8 : format_at + 8 + WAV_FORMAT]) if format_at > 0 else None
    else:
        rate = _mp3_rate(head)
    if not rate:
        return None
    return len(data) * 0.75 / min(max(rate, SLOWEST), FASTEST)


def wav_rate(chunk: bytes) -> int:
    """Bytes per second of a WAV by its format chunk; 0 if it does not tell.

    Decoders go by sample rate and block size and ignore the byte rate, so a file may claim any. Without PCM only the
    byte rate tells something; it counts up to the highest likely one.
    """
    if len(chunk) < 16:
        return 0
    kind, channels = _little(chunk, 0, 2), _little(chunk, 2, 2)
    if kind == EXTENSIBLE and len(chunk) >= WAV_FORMAT:
        kind = _little(chunk, 24, 2)
    if kind not in PCM:
        return min(_little(chunk, 8, 4) or FASTEST_COMPRESSED, FASTEST_COMPRESSED)
    block, frame = _little(chunk, 12, 2), channels * (_little(chunk, 14, 2) + 7 >> 3)
    return _little(chunk, 4, 4) * min(block or frame, frame or block)


def decoded(text: str, start: int, length: int | None = None) -> bytes:
    """The decoded bytes of a part of a base64 text, or of all from `start`; empty if it is not base64."""
    try:
        part = text[start:] if length is None else text[start : start + length]
        return b64decode(part[: len(part) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return _positive(_little(head, 24, 3) + 1, _little(head, 27, 3) + 1)
    if kind == b"VP8L":
        bits = _little(head, 21, 4)
        return _positive((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        return _positive(_little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF)
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Width and height from the frame header, which follows at most `MAX_SEGMENTS` segments."""
    at = 2
    for _ in range(MAX_SEGMENTS):
        if at + 9 > len(head) or head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _positive(_big(head, at + 7, 2), _big(head, at + 5, 2))
        at += 2 + max(2, _big(head, at + 2, 2))
    return None


def _mp3_rate(head: bytes) -> int | None:
    """Bytes per second of the first MP3 frame; None if the data begins with a tag."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:  # sync, layer III
        return None
    kbits = MP3_KBITS[head[1] & 0x18 != 0x18]
    index = head[2] >> 4
    return kbits[index] * 125 if index < len(kbits) else None


def _big(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big")


def _little(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "little")


def _positive(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width and height else None

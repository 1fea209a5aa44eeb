"""Made-up speech: a tone that the voice and the text decide, as long as the text would take to say.

WAV and PCM carry the tone, MP3 frames of silence, for no encoder is at hand; other formats are refused.
"""

from __future__ import annotations

import array
import hashlib
import struct
import sys
from collections.abc import Iterator
from math import pi, sin

from gateway import SpeechChunk, SpeechRequest, SpeechUsage
from gateway.errors import InvalidValue, UpstreamTruncated

from .script import Script

FORMATS = frozenset({"mp3", "wav", "pcm"})
VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"}
)
RATE = 24_000  # samples a second
SECONDS_PER_LETTER = 0.05
PIECE = 4_800  # bytes of a chunk: a tenth of a second of PCM
LOUD = 6_000

# MPEG 2 layer III, 64 kbit/s, 24 kHz, mono: 192 bytes for 576 samples, and no bits for any of them.
MP3_FRAME = b"\xff\xf3\x84\xc4" + bytes(188)
MP3_FRAME_SECONDS = 0.024


def speech_chunks(request: SpeechRequest, script: Script) -> Iterator[SpeechChunk]:
    """The audio in pieces, usage with the last; InvalidValue for a voice that there is not."""
    if isinstance(request.voice, str) and request.voice not in VOICES:
        supported = ", ".join(sorted(VOICES))
        raise InvalidValue(f"There is no such voice. Supported are: {supported}.", param="voice")
    seconds = len(request.input) * SECONDS_PER_LETTER / (request.speed or 1.0)
    audio = _audio(request, seconds)
    size = -(-len(audio) // script.chunks) if script.chunks else PIECE
    pieces = [audio[start : start + size] for start in range(0, len(audio), size)]
    while True:
        for piece in pieces:
            yield SpeechChunk(piece)
        if not script.endless:
            break
    if script.truncated:
        raise UpstreamTruncated()
    if script.usage != "none":
        yield SpeechChunk(usage=_usage(request, seconds, script))


def _audio(request: SpeechRequest, seconds: float) -> bytes:
    if request.format == "mp3":
        return MP3_FRAME * max(1, round(seconds / MP3_FRAME_SECONDS))
    pcm = _tone(request, seconds)
    return _wav_header(len(pcm)) + pcm if request.format == "wav" else pcm


def _tone(request: SpeechRequest, seconds: float) -> bytes:
    """One period of a tone that divides the sampling rate, again and again."""
    digest = hashlib.sha256(f"{request.voice_name} {request.input}".encode()).digest()
    period = 60 + digest[0] % 60  # samples: 200 to 400 Hz
    samples = array.array("h", (round(LOUD * sin(2 * pi * step / period)) for step in range(period)))
    if sys.byteorder == "big":
        samples.byteswap()
    length = 2 * max(1, round(seconds * RATE))
    return (samples.tobytes() * (length // (2 * period) + 1))[:length]


def _wav_header(size: int) -> bytes:
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16, b"data", size
    )


def _usage(request: SpeechRequest, seconds: float, script: Script) -> SpeechUsage:
    words = len(request.input.split()) or 1
    usage = SpeechUsage(words, round(seconds * 20))
    wrong = script.wrong(words)
    if wrong is not None:
        usage = SpeechUsage(wrong, wrong)
    usage.total_tokens = usage.input_tokens + usage.output_tokens
    return usage

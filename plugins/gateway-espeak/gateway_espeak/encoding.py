"""Samples to the formats of speech, as they come: `encoder(format, rate)`, then `feed` and `close`, which give bytes.

All audio goes out at 24 kHz, mono. Sharp edges: FLAC comes whole with `close`, because its header counts the samples;
WAV's header says, as streamed ones do, that nobody knows how long it is.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from struct import pack
from types import MappingProxyType
from typing import Protocol

import numpy as np
import soundfile
import soxr

RATE = 24_000
UNKNOWN = 0xFFFFFFFF

#: What libsndfile is asked for. A constant bit rate, because a player that sees an MP3 without its length, as a
#: streamed one is, computes it from the rate; this level is 64 kbit/s or a little less.
CONTAINERS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "mp3": {
            "format": "MP3",
            "subtype": "MPEG_LAYER_III",
            "bitrate_mode": "CONSTANT",
            "compression_level": 0.6,
        },
        "opus": {"format": "OGG", "subtype": "OPUS"},
        "flac": {"format": "FLAC", "subtype": "PCM_16"},
    }
)
FORMATS = frozenset({"wav", "pcm", *CONTAINERS})


class Encoder(Protocol):
    """The audio of one answer."""

    def feed(self, samples: bytes) -> bytes:
        """The next 16-bit samples; the bytes that are ready."""

    def close(self) -> bytes:
        """The bytes that end it."""


def encoder(format: str, rate: int) -> Encoder:
    """An encoder for samples of that rate."""
    audio = _Packed(CONTAINERS[format]) if format in CONTAINERS else _Plain(wav=format == "wav")
    return _Resampled(rate, audio)


class _Resampled:
    """Brings samples to 24 kHz before they are written."""

    def __init__(self, rate: int, audio: _Plain | _Packed) -> None:
        self._stream = soxr.ResampleStream(rate, RATE, 1, dtype="int16")
        self._audio = audio

    def feed(self, samples: bytes) -> bytes:
        return self._audio.feed(self._stream.resample_chunk(np.frombuffer(samples, np.int16)))

    def close(self) -> bytes:
        rest = self._stream.resample_chunk(np.empty(0, np.int16), last=True)
        return self._audio.feed(rest) + self._audio.close()


class _Plain:
    """Samples as they are, with a WAV's header before them or without."""

    def __init__(self, *, wav: bool) -> None:
        self._header = _wav_header() if wav else b""

    def feed(self, samples: np.ndarray) -> bytes:
        header, self._header = self._header, b""
        return header + bytes(samples.astype("<i2", copy=False).data)

    def close(self) -> bytes:
        return b""


class _Packed:
    """What libsndfile writes."""

    def __init__(self, container: Mapping[str, object]) -> None:
        self._whole = container["format"] == "FLAC"
        self._sink = io.BytesIO() if self._whole else _Sink()
        self._file = soundfile.SoundFile(self._sink, "w", RATE, 1, **container)

    def feed(self, samples: np.ndarray) -> bytes:
        self._file.write(samples)
        return b"" if isinstance(self._sink, io.BytesIO) else self._sink.taken()

    def close(self) -> bytes:
        self._file.close()
        return self._sink.getvalue() if isinstance(self._sink, io.BytesIO) else self._sink.taken()


class _Sink:
    """A file whose bytes leave at once; what is written over them later, an MP3's index, comes too late and is lost."""

    def __init__(self) -> None:
        self._at = self._end = 0
        self._ready = bytearray()

    def taken(self) -> bytes:
        """What was written since the last time."""
        ready = bytes(self._ready)
        self._ready.clear()
        return ready

    def write(self, piece: bytes) -> int:
        size = len(piece)
        if self._at == self._end:
            self._ready += piece
            self._end += size
        self._at += size
        return size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is kept back."""


def _wav_header() -> bytes:
    form = pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, RATE * 2, 2, 16)
    return pack("<4sI4s", b"RIFF", UNKNOWN, b"WAVE") + form + pack("<4sI", b"data", UNKNOWN)

"""A file of audio as what the recogniser takes: mono samples of 16 bits at 16 kHz, block by block.

libsndfile reads WAV, FLAC, Ogg (Vorbis and Opus), MP3 and more; `Unreadable` says what it does not. Sharp edge: a
header's own length is not believed, for streamed audio has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np
import soundfile
import soxr

RATE = 16_000
BLOCK = 65_536  # samples of all channels together that are in memory at once
LEAST_RATE, MOST_RATE = 4_000, 384_000


class Unreadable(Exception):
    """It is no audio, or none that can be listened to; the text is for the caller."""


def samples(source: IO[bytes], longest: float) -> Iterator[bytes]:
    """The audio of a file, however long its blocks are; Unreadable when it is none, or plays longer than `longest`."""
    try:
        with _Straight(source.fileno(), closefd=False) as file:
            if not LEAST_RATE <= file.samplerate <= MOST_RATE:
                raise Unreadable(f"The file has {file.samplerate} samples a second.")
            yield from _blocks(file, longest)
    except soundfile.LibsndfileError:
        raise Unreadable("The file is no audio that this model can read: wav, flac, ogg and mp3 are.") from None


class _Straight(soundfile.SoundFile):  # type: ignore[misc]
    """Reads on and on: soundfile seeks after each block of a seekable file, which the decoder of MP3 logs as errors."""

    def seekable(self) -> bool:
        return False


def _blocks(file: soundfile.SoundFile, longest: float) -> Iterator[bytes]:
    stream = soxr.ResampleStream(file.samplerate, RATE, 1, dtype="float32")
    size, read = max(1, BLOCK // file.channels), 0
    while len(block := file.read(size, dtype="float32", always_2d=True)):
        read += len(block)
        _check(read / file.samplerate, longest)
        yield _sixteen_bits(stream.resample_chunk(block.mean(axis=1)))
    yield _sixteen_bits(stream.resample_chunk(np.empty(0, np.float32), last=True))


def _sixteen_bits(block: np.ndarray) -> bytes:
    samples: bytes = (np.nan_to_num(block).clip(-1.0, 1.0) * 32_767).astype(np.int16).tobytes()
    return samples


def _check(seconds: float, longest: float) -> None:
    if seconds > longest:
        raise Unreadable(f"The audio is longer than {longest:g} seconds.")

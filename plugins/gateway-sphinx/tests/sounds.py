"""What the tests listen to: files as the gateway would hand them over, most of them made here.

`spoken.flac` was spoken by eSpeak NG.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from gateway import Target, TranscriptionRequest

SPOKEN = (Path(__file__).parent / "spoken.flac").read_bytes()
SAID = "the president of the united states"
TARGET = Target("sphinx", "sphinx")


class File:
    """An upload as the gateway would hand it over; `sent` says that all of it has been taken."""

    filename = "audio"
    media_type = "application/octet-stream"
    seconds: float | None = None

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)
        self.sent = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        for at in range(0, self.size, 65_536):
            yield self.data[at : at + 65_536]
        self.sent.set()


class EndlessFile(File):
    """One whose caller never stops sending; `gate` says that it has begun."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.gate = asyncio.Event()

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b"RIFF"
        self.gate.set()
        await asyncio.Event().wait()


def asked(file: File, **fields: Any) -> TranscriptionRequest:
    return TranscriptionRequest(model="m", file=file, **fields)


def written(samples: np.ndarray, *, rate: int = 16_000, **container: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, **container)
    return file.getvalue()


def noise(seconds: float, *, loud: float = 0.2) -> np.ndarray:
    """A rustle, always the same, at 16 kHz."""
    return np.random.default_rng(3).normal(0, loud, int(16_000 * seconds)).astype(np.float32)


def spoken() -> np.ndarray:
    """The samples of what is said, at 16 kHz."""
    samples, _ = soundfile.read(io.BytesIO(SPOKEN), dtype="float32")
    return samples

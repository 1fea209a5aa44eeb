"""What the tests of speaking and listening vendors share: requests, an upload that counts, and a started provider."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import msgspec

from gateway import Provider, SpeechChunk, SpeechRequest, Target, TranscriptionRequest, Upstream
from gateway.schemas.speech import decode_speech_request
from gateway.schemas.transcription import decode_transcription_request

P = TypeVar("P", bound=Provider)

MP3 = b"\xff\xfb\x90\xc4" + bytes(413)


def speech(**fields: Any) -> SpeechRequest:
    body = {"model": "house-voice", "input": "Good morning.", "voice": "alloy", **fields}
    return decode_speech_request(msgspec.json.encode(body))


def listening(file: Any, **fields: str) -> TranscriptionRequest:
    return decode_transcription_request([("model", "house-ear"), *fields.items()], file)


class Upload:
    """A sound that is made as it is read, in pieces of 64 KiB."""

    filename = "morning.mp3"
    seconds: float | None = None

    def __init__(self, size: int = 1000, *, media_type: str = "audio/mpeg") -> None:
        self.size = size
        self.media_type = media_type
        self.pieces = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, self.size, 65_536):
            self.pieces += 1
            yield b"\x55" * min(65_536, self.size - start)


@contextlib.asynccontextmanager
async def started(kind: type[P], **options: Any) -> AsyncIterator[P]:
    """A started provider, with the gateway's own way out."""
    link = Upstream()
    subject = kind(kind.Options(**options), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


async def spoken(subject: Any, request: SpeechRequest, target: Target) -> bytes:
    chunks: list[SpeechChunk] = [chunk async for chunk in subject.speak(request, target)]
    return b"".join(chunk.audio for chunk in chunks)

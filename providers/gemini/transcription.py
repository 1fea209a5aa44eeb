"""Transcription: the audio inside the request, with an instruction to write down what is said.

The body is made while it is sent: `audio_body` encodes the upload piece by piece, so that never more than one piece is
in memory. Sharp edge: Gemini knows no times and no speakers here, so only text comes of it.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gateway import Transcript, TranscriptionRequest
from gateway.errors import ContentFiltered, RequestTooLarge, UpstreamInvalidResponse, UpstreamTruncated

from .finish import FILTERED, VAGUE
from .usage import transcript_usage
from .wire import WireAnswer

FORMATS = frozenset({"json", "text"})

_INSTRUCTION = (
    "Transcribe the speech in this recording word for word, in the language that is spoken. "
    "Reply with the transcript alone; with nothing if nobody speaks."
)
_TYPES = {"audio/mpeg": "audio/mp3", "audio/mpga": "audio/mp3", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav"}
_HOLE = "here comes the audio"

_encoder = msgspec.json.Encoder()


class AudioBody:
    """A request whose audio is encoded as it is sent; `length` is known beforehand, so it need not go in chunks."""

    def __init__(self, request: TranscriptionRequest, *, most: int) -> None:
        if request.file.size > most:
            raise RequestTooLarge(f"The audio is too large for this model ({request.file.size} bytes; at most {most}).")
        self._file = request.file
        # From the right: a caller's hints stand before the audio, and may say anything.
        self._head, _, self._tail = _frame(request).rpartition(_HOLE.encode())
        self.length = len(self._head) + -(-request.file.size // 3) * 4 + len(self._tail)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body; base64 is made of whole groups of three bytes, so up to two wait for the next piece."""
        yield self._head
        rest = b""
        async for chunk in self._file.chunks():
            chunk = rest + chunk
            whole = len(chunk) - len(chunk) % 3
            rest = chunk[whole:]
            if whole:
                yield base64.b64encode(memoryview(chunk)[:whole])
        yield base64.b64encode(rest) + self._tail


def _frame(request: TranscriptionRequest) -> bytes:
    """The whole body, with a hole for the audio."""
    kind = _TYPES.get(request.file.media_type, request.file.media_type)
    parts = [{"text": instruction(request)}, {"inlineData": {"mimeType": kind, "data": _HOLE}}]
    return _encoder.encode(
        {
            "generationConfig": {"temperature": request.temperature or 0.0},
            "contents": [{"role": "user", "parts": parts}],
        }
    )


def instruction(request: TranscriptionRequest) -> str:
    """What Gemini is asked to do, with the caller's hints."""
    said = [_INSTRUCTION]
    languages = [request.language] if request.language else request.languages
    if languages:
        said.append(f"Language: {', '.join(languages)}.")
    if request.keywords:
        said.append(f"Words that may occur: {', '.join(request.keywords)}.")
    if request.prompt:
        said.append(f"Context, not to be repeated: {request.prompt}")
    return "\n".join(said)


class TranscriptReader:
    """Collects the transcript from a whole answer or from the frames of a stream."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._usage: Any = None
        self._ended = False

    def read(self, answer: WireAnswer) -> str:
        """The text that a frame adds."""
        if answer.usage_metadata is not None:
            self._usage = answer.usage_metadata
        new = "".join(
            part.text
            for candidate in answer.candidates or ()
            for part in candidate.parts
            if part.text and not part.thought
        )
        self._text.append(new)
        reason = next((one.finish_reason for one in answer.candidates or () if one.finish_reason), answer.block_reason)
        if reason is not None:
            self._end(reason)
        return new

    def transcript(self) -> Transcript:
        """The whole; UpstreamTruncated when its end has not come."""
        if not self._ended:
            raise UpstreamTruncated()
        return Transcript("".join(self._text).strip(), usage=transcript_usage(self._usage))

    def _end(self, reason: str) -> None:
        if reason == "STOP":
            self._ended = True
        elif reason in FILTERED | VAGUE:
            raise ContentFiltered(param="file", detail=f"finish reason {reason!r}")
        elif reason == "MAX_TOKENS":
            raise UpstreamTruncated(detail="the transcript is longer than the model's output")
        else:
            raise UpstreamInvalidResponse(detail=f"finish reason {reason!r}")

"""Speech of OpenAI-compatible servers: bytes as they come, or events with base64 in them when the caller wants events.

Whichever form a server answers with is taken, told apart by its media type. Sharp edge: bytes carry no mark of their
end; audio is whole when its HTTP body is, and only events tell usage.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct

from gateway import Answer, Event, Speech, SpeechChunk, SpeechRequest, SpeechUsage, Target
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.plugins.upstream_errors import error_of_document
from gateway.sse import DONE_DATA

from .._shared.audio_body import audio_of
from .._shared.base64_text import base64_bytes
from .._shared.documents import decoded, json_object
from .server import OpenAIServer, SharedOptions, fields_body

DELTA, DONE = "speech.audio.delta", "speech.audio.done"


class WireSpeechEvent(Struct):
    """An event's data as it comes."""

    type: str = ""
    audio: str = ""
    usage: Any = None
    error: Any = UNSET


_events = msgspec.json.Decoder(WireSpeechEvent)


class OpenAISpeech(OpenAIServer, Speech):
    """`POST /audio/speech`."""

    speech_fields: ClassVar[frozenset[str] | None] = None

    async def speak(self, request: SpeechRequest, target: Target) -> AsyncIterator[SpeechChunk]:
        """The audio as it is made."""
        body = speech_body(request, target, self.options)
        async with await self.post("/audio/speech", body, target, accept="*/*") as answer:
            media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            is_events = media_type == "text/event-stream"
            async for chunk in self._events(answer) if is_events else audio_of(answer, self.hidden):
                yield chunk

    async def _events(self, answer: Answer) -> AsyncIterator[SpeechChunk]:
        spoke = False
        while events := await answer.read_events():
            for event in events:
                if event.data == DONE_DATA:
                    if spoke:  # the end, of a server that does not count
                        answer.release()
                        return
                    continue
                chunk, last = read_event(event, self.hidden)
                if chunk is not None:
                    spoke = spoke or bool(chunk.audio)
                    yield chunk
                if last:
                    answer.release()
                    return
        raise UpstreamTruncated()


def speech_body(request: SpeechRequest, target: Target, options: SharedOptions) -> bytes:
    """The JSON to send for `request` to `target`."""
    fields = dict(request.fields)
    if request.stream_format != "sse":
        fields.pop("stream_format", None)  # what older models and most other servers do not know
    return fields_body(fields, target, options)


def read_event(event: Event, hidden: Sequence[str] = ()) -> tuple[SpeechChunk | None, bool]:
    """The audio or the usage in an event, and whether it is the last."""
    found = decoded(_events, event.data)
    if found.error or event.name == "error" or found.type == "error":
        raise error_of_document(found.error or json_object(event.data), hidden)
    if found.type == DONE:
        return SpeechChunk(usage=read_usage(found.usage)), True
    if found.type != DELTA:
        return None, False
    audio = base64_bytes(found.audio)
    if audio is None:
        raise UpstreamInvalidResponse(detail="audio that is not base64")
    return SpeechChunk(audio), False


def read_usage(document: Any) -> SpeechUsage | None:
    """Usage, if it is one."""
    try:
        return msgspec.convert(document, SpeechUsage)
    except msgspec.ValidationError:
        return None

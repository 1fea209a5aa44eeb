"""The body of `POST /v1/audio/speech`, and what a provider answers to it (docs/fields.md, "Speech").

`decode_speech_request(body)` is the only way in; it raises nothing but `BadRequest` errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.schemas.duplicate_keys import Examined, unexplained_names
from gateway.schemas.empty_fields import drop_nulls
from gateway.schemas.request_fields import OWN, Core, RequestFields, Sampling, Semantic
from gateway.schemas.validation import BodyDecoder

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

#: What each format is called in a `Content-Type`.
MEDIA_TYPES: Mapping[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


class VoiceId(Struct):
    """A voice of the caller's own."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]


class SpeechRequest(RequestFields, kw_only=True):
    """A valid speech request; an absent or null field is None."""

    model: Core[Annotated[str, Meta(min_length=1, max_length=256)]]
    input: Core[Annotated[str, Meta(min_length=1, max_length=4096)]]
    voice: Core[Annotated[str, Meta(min_length=1, max_length=256)] | VoiceId]
    instructions: Sampling[Annotated[str, Meta(max_length=4096)] | None] = None
    response_format: Core[SpeechFormat | None] = None  # each provider says which it can make
    speed: Semantic[Annotated[float, Meta(ge=0.25, le=4.0)] | None] = None
    stream_format: Core[Literal["audio", "sse"] | None] = None  # the gateway writes both forms

    @property
    def format(self) -> SpeechFormat:
        """The format of the audio."""
        return self.response_format or "mp3"

    @property
    def voice_name(self) -> str:
        """The voice, by name or id."""
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice

    def demands(self) -> frozenset[str]:
        """A speed other than the usual one."""
        return frozenset({"speed"}) if self.speed not in (None, 1.0) else frozenset()


_body = BodyDecoder(SpeechRequest, own=OWN)


def decode_speech_request(body: bytes | Examined) -> SpeechRequest:
    """The request in `body`; raises only BadRequest errors, each with the wire's code and the exact param."""
    request, fields = _body.decode(body)
    unexplained_names(body, len(fields))
    drop_nulls(fields)
    request.take_fields(fields, searched=("voice",))
    return request


class SpeechUsage(Struct):
    """Tokens of a speech model, in the wire's words."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count = 0


class SpeechChunk(Struct):
    """Some bytes of the audio as they come, usage with the last when the upstream tells it."""

    audio: bytes = b""
    usage: SpeechUsage | None = None
    format: str = ""  # with the first bytes: "pcm" where the upstream says that they are raw samples

"""The body of `POST /v1/audio/speech`, and what a provider answers to it (wire contract 1.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Raw, Struct, field

if TYPE_CHECKING:
    FieldTable = dict[str, Raw]
    Names = tuple[str, ...]
else:
    FieldTable = Names = Raw  # as in chat_request: a caller's field of that name passes unread, and is overwritten

Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]


class VoiceId(Struct):
    """A voice of the caller's own."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]


class SpeechRequest(Struct, kw_only=True):
    """A valid speech request; an absent or null field is None."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: Annotated[str, Meta(min_length=1, max_length=4096)]
    voice: Annotated[str, Meta(min_length=1, max_length=256)] | VoiceId
    instructions: Annotated[str, Meta(max_length=4096)] | None = None
    response_format: SpeechFormat | None = None
    speed: Annotated[float, Meta(ge=0.25, le=4.0)] | None = None
    stream_format: Literal["audio", "sse"] | None = None

    #: Every top-level field as sent, forbidden ones removed.
    fields: FieldTable = field(default_factory=dict)
    #: Names of unknown top-level fields that are in `fields`.
    extra: Names = ()
    #: What was removed, written so that it may stand in `x-gateway-dropped-params`.
    dropped: Names = ()

    @property
    def format(self) -> SpeechFormat:
        """The format of the sound."""
        return self.response_format or "mp3"

    @property
    def voice_name(self) -> str:
        """The voice, by name or id."""
        return self.voice.id if isinstance(self.voice, VoiceId) else self.voice


class SpeechUsage(Struct):
    """Tokens of a speech model, in the wire's words."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count = 0


class SpeechChunk(Struct):
    """Some bytes of the sound as they come, usage with the last when the upstream tells it."""

    audio: bytes = b""
    usage: SpeechUsage | None = None

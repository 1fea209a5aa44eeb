"""The events of an upstream: what is counted of them, and the public name of the model in them.

Most events are passed on as the bytes that arrived. Sharp edge: the names of the beta version of the API are here, too;
some servers still send them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.errors import UpstreamInvalidResponse
from gateway.redaction import clean

CREATED: Final = "response.created"
DONE: Final = "response.done"
ERROR: Final = "error"
AUDIO: Final = frozenset({"response.output_audio.delta", "response.audio.delta"})
TEXT: Final = frozenset(
    {
        "response.output_text.delta",
        "response.text.delta",
        "response.output_audio_transcript.delta",
        "response.audio_transcript.delta",
        "response.function_call_arguments.delta",
    }
)
SESSION: Final = frozenset({"session.created", "session.updated"})
#: The events that name the model, with the member that does.
NAMES_MODEL: Final[Mapping[str, str]] = {
    "session.created": "session",
    "session.updated": "session",
    CREATED: "response",
    DONE: "response",
}
TRANSCRIBED: Final = "conversation.item.input_audio_transcription.completed"
PCM_BYTES_PER_MS: Final = 48  # 24 kHz, 16 bits
G711_BYTES_PER_MS: Final = 8


NOTHING: Final = Raw(b"")  # a value that is absent; msgspec reads no union of Raw and None


class ServerEvent(Struct):
    """The fields of an event that are read before all others."""

    type: str
    response_id: Any = None
    delta: Raw = NOTHING


class Response(Struct):
    """A response in `response.created` and `response.done`; `usage` may be anything."""

    id: str = ""
    status: Any = None
    conversation_id: Any = UNSET
    usage: Raw = NOTHING


class _ResponseEvent(Struct):
    response: Response


class Transcribed(Struct):
    """A transcript of what the client has said, which the upstream charges apart."""

    transcript: str = ""
    usage: Raw = NOTHING


class AudioFormats(Struct):
    """Bytes of a millisecond of audio, in both directions."""

    input: int = PCM_BYTES_PER_MS
    output: int = PCM_BYTES_PER_MS


class _Format(Struct):
    type: Any = None


class _Direction(Struct):
    format: _Format | None = None


class _Audio(Struct):
    input: _Direction | None = None
    output: _Direction | None = None


class _Session(Struct):
    audio: _Audio | None = None
    input_audio_format: Any = None
    output_audio_format: Any = None


class _SessionEvent(Struct):
    session: _Session


class _Error(Struct):
    message: Any = None
    type: Any = None
    code: Any = None
    param: Any = None
    event_id: Any = None


class _ErrorEvent(Struct):
    error: _Error
    type: str = ERROR
    event_id: Any = None


_event = msgspec.json.Decoder(ServerEvent)
_response = msgspec.json.Decoder(_ResponseEvent)
_transcribed = msgspec.json.Decoder(Transcribed)
_session = msgspec.json.Decoder(_SessionEvent)
_error = msgspec.json.Decoder(_ErrorEvent)
_table = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_server_event(event: bytes) -> ServerEvent:
    """The first fields of an event; UpstreamInvalidResponse if it is none."""
    try:
        return _event.decode(event)
    except _UNREADABLE:
        raise UpstreamInvalidResponse(detail="an event that is no JSON object with a type") from None


def response_of(event: bytes) -> Response:
    """The response in an event; UpstreamInvalidResponse without one."""
    try:
        return _response.decode(event).response
    except _UNREADABLE:
        raise UpstreamInvalidResponse(detail="an event without its response") from None


def transcribed_of(event: bytes) -> Transcribed:
    """A transcript; an empty one if the event has another form."""
    try:
        return _transcribed.decode(event)
    except _UNREADABLE:
        return Transcribed()


def formats_of(event: bytes) -> AudioFormats | None:
    """The formats of audio in a session; None if the event does not say them."""
    try:
        session = _session.decode(event).session
    except _UNREADABLE:
        return None
    audio = session.audio or _Audio()
    return AudioFormats(
        _bytes_per_ms(audio.input, session.input_audio_format), _bytes_per_ms(audio.output, session.output_audio_format)
    )


def with_model(event: bytes, member: str, model: str) -> bytes:
    """The event with `model` in place of the model in its `member`; the same bytes if it names none."""
    try:
        fields = _table.decode(event)
        inner = _table.decode(fields[member])
    except (*_UNREADABLE, KeyError):
        return event
    if "model" not in inner:
        return event
    inner["model"] = Raw(_encode(model))
    fields[member] = Raw(_encode(inner))
    return _encode(fields)


def cleaned_error(event: bytes, hidden: Sequence[str]) -> bytes:
    """An error of the upstream without addresses and secrets."""
    try:
        found = _error.decode(event)
    except _UNREADABLE:
        found = _ErrorEvent(_Error())
    error = found.error
    texts = {
        name: clean(value, hidden) if isinstance(value := getattr(error, name), str) else None
        for name in ("message", "type", "code", "param", "event_id")
    }
    texts["message"] = texts["message"] or "The model provider reported an error"
    texts["type"] = texts["type"] or "server_error"
    ours = {"type": ERROR, "error": texts}
    return _encode(ours if not isinstance(found.event_id, str) else {**ours, "event_id": found.event_id})


def delta_bytes(delta: Raw) -> int:
    """How many bytes the base64 text of a delta stands for."""
    return max(0, len(bytes(delta)) - 2) * 3 // 4


def _bytes_per_ms(direction: _Direction | None, named: Any) -> int:
    kind = direction.format.type if direction is not None and direction.format is not None else named
    return (
        G711_BYTES_PER_MS
        if isinstance(kind, str) and ("pcmu" in kind or "pcma" in kind or "g711" in kind)
        else (PCM_BYTES_PER_MS)
    )

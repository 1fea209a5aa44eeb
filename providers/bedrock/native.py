"""Messages requests for Claude models on Bedrock: InvokeModel takes the body of the dialect as it was sent.

The model is in the address. The version and the beta flags, which are headers at Anthropic, are fields of the body. A
stream has Anthropic's events, each as base64 in a frame. Sharp edge: a turn of the role `system` needs a flag that
Bedrock does not have, so it becomes a part of the user's turn, as in translated requests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway import ChatRequest, Event, NativeChunk, NativeRequest

from .._shared.documents import decoded
from ..anthropic.accepted import SYSTEM_TURNS
from ..anthropic.models import ModelTraits
from ..anthropic.native import flags_of, native_body
from ..anthropic.native_events import NativeReader
from .accepted import VERSION
from .errors import raise_exception
from .event_stream import Frame

INVOKE, INVOKE_STREAM = "invoke", "invoke-with-response-stream"
CLAUDE = "claude"  # whatever the name of the model: an ARN may hide it
USER = Raw(b'"user"')
METRICS = b'"amazon-bedrock-'  # members that Bedrock adds to an event

_encoder = msgspec.json.Encoder()
_turns = msgspec.json.Decoder(list[dict[str, Raw]])
_blocks = msgspec.json.Decoder(list[Raw])
_table = msgspec.json.Decoder(dict[str, Raw])
_SYSTEM_ROLE = re.compile(rb'"role"\s*:\s*"system"')


class _Part(Struct):
    """The payload of a frame."""

    event: bytes = msgspec.field(default=b"", name="bytes")  # in JSON; base64 on the wire


_part = msgspec.json.Decoder(_Part)


def invoke_body(request: ChatRequest, native: NativeRequest, traits: ModelTraits) -> bytes:
    """The body of InvokeModel."""
    body: dict[str, Any] = {"anthropic_version": VERSION, **native_body(request, native, CLAUDE, traits)}
    if _SYSTEM_ROLE.search(bytes(body["messages"])):
        body["messages"] = without_system_turns(body["messages"])
    if flags := [flag for flag in flags_of(native) if flag != SYSTEM_TURNS]:
        body["anthropic_beta"] = flags
    return _encoder.encode(body)


def without_system_turns(messages: Raw) -> Raw:
    """The messages with each turn of the system as a part of the user's turn beside it."""
    turns: list[dict[str, Raw]] = []
    for turn in _turns.decode(messages):
        if bytes(turn.get("role", b"")) == b'"system"':
            turn = {**turn, "role": USER}
        if turns and _is_users(turns[-1]) and _is_users(turn):
            turn = {**turn, "content": _joined(turns.pop(), turn)}
        turns.append(turn)
    return Raw(_encoder.encode(turns))


def _is_users(turn: dict[str, Raw]) -> bool:
    return bytes(turn.get("role", b"")) == bytes(USER)


def _joined(*turns: dict[str, Raw]) -> Raw:
    """The blocks of all turns."""
    return Raw(_encoder.encode([block for turn in turns for block in _blocks_of(turn.get("content", Raw(b"[]")))]))


def _blocks_of(content: Raw) -> list[Raw]:
    if bytes(content).startswith(b"["):
        return _blocks.decode(content)
    return [Raw(b'{"type":"text","text":%b}' % bytes(content))]


class NativeFrames:
    """Reads the frames of one stream."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self._hidden = hidden
        self._reader = NativeReader(hidden)

    @property
    def complete(self) -> bool:
        """Whether the last event was read."""
        return self._reader.complete

    def read(self, frame: Frame) -> list[NativeChunk]:
        """The chunks to send now; an exception or an error event is raised."""
        raise_exception(frame, self._hidden)
        if frame.headers.get(":event-type", "") != "chunk":
            return []
        data = decoded(_part, frame.payload).event
        return self._reader.read(Event(data if METRICS not in data else _without_metrics(data)))


def _without_metrics(event: bytes) -> bytes:
    """An event without what Bedrock has added: counts that belong to the operator."""
    fields = decoded(_table, event)
    return _encoder.encode({name: value for name, value in fields.items() if not name.startswith("amazon-bedrock-")})

"""Messages requests for Claude models on Bedrock: InvokeModel takes the body of the dialect as it was sent.

The model is in the address. The version and the beta flags, which are headers at Anthropic, are fields of the body. A
stream has Anthropic's events, each as base64 in a frame.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from gateway import AcceptedFields, ChatRequest, Event, NativeChunk, NativeRequest

from .._shared.documents import decoded
from ..anthropic import cloud
from ..anthropic.models import OLD_VERSION, ModelTraits
from ..anthropic.native import flags_of, native_body
from ..anthropic.native_events import NativeReader
from .errors import raise_exception
from .event_stream import Frame

INVOKE, INVOKE_STREAM = "invoke", "invoke-with-response-stream"
CLAUDE = "claude"  # whatever the name of the model: an ARN may hide it
#: Bedrock's names of the API's versions, where they differ.
VERSIONS = {OLD_VERSION: "bedrock-2023-05-31"}
METRICS = b'"amazon-bedrock-'  # members that Bedrock adds to an event

_encoder = msgspec.json.Encoder()
_table = msgspec.json.Decoder(dict[str, Raw])


class _Part(Struct):
    """The payload of a frame."""

    event: bytes = msgspec.field(default=b"", name="bytes")  # in JSON; base64 on the wire


_part = msgspec.json.Decoder(_Part)


def invoke_body(request: ChatRequest, native: NativeRequest, traits: ModelTraits, accepted: AcceptedFields) -> bytes:
    """The body of InvokeModel."""
    native = cloud.fitted(native, accepted)
    body = native_body(request, native, CLAUDE, traits)
    if flags := flags_of(native):
        body["anthropic_beta"] = flags
    return _encoder.encode({"anthropic_version": VERSIONS.get(traits.version, traits.version), **body})


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

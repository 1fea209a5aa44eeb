"""ConverseStream's events, read into chunks.

`EventReader.read(frame)` gives the chunk a frame amounts to, if any, and raises what an exception frame means;
`complete` says whether the stream may end. Sharp edge: the proof that a stream is whole is `metadata`, the event with
the usage, which comes after the finish: a stream cut in between has finished and is truncated all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gateway import ChatChunk, ChunkChoice, Delta

from .._shared.documents import decoded
from .answer import Thoughts, WireTier, WireToolUse, read_finish, read_tier, read_usage
from .errors import raise_exception
from .event_stream import Frame


class WireStart(Struct, rename="camel"):
    """How a block begins; blocks of text and of reasoning begin without one."""

    tool_use: WireToolUse | None = None


class BlockStart(Struct, rename="camel"):
    """contentBlockStart"""

    start: WireStart
    content_block_index: int = 0


class WireToolDelta(Struct):
    """A piece of a call's arguments."""

    input: str = ""


class WireReasoningDelta(Struct, rename="camel"):
    """A piece of thought, or what proves or seals it."""

    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class WireDelta(Struct, rename="camel"):
    """What a block goes on with; exactly one field is set, or none that is known here."""

    text: str | None = None
    tool_use: WireToolDelta | None = None
    reasoning_content: WireReasoningDelta | None = None


class BlockDelta(Struct, rename="camel"):
    """contentBlockDelta"""

    delta: WireDelta
    content_block_index: int = 0


class BlockStop(Struct, rename="camel"):
    """contentBlockStop"""

    content_block_index: int = 0


class MessageStop(Struct, rename="camel"):
    """messageStop"""

    stop_reason: str


class Metadata(Struct, rename="camel"):
    """metadata"""

    usage: Any = None
    service_tier: WireTier | None = None


_start_decoder = msgspec.json.Decoder(BlockStart)
_delta_decoder = msgspec.json.Decoder(BlockDelta)
_stop_decoder = msgspec.json.Decoder(BlockStop)
_message_decoder = msgspec.json.Decoder(MessageStop)
_metadata_decoder = msgspec.json.Decoder(Metadata)


class _Call(Struct):
    """A tool call under way."""

    position: int
    said: bool = False  # some of its arguments have come


class _Thought(Struct):
    """A block of reasoning under way."""

    texts: list[str]
    signature: str = ""


class EventReader:
    """Reads the frames of one stream."""

    def __init__(self, hidden: Sequence[str] = (), *, asked_tier: str | None = None) -> None:
        self.complete = False
        self._hidden = hidden
        self._asked_tier = asked_tier
        self._finished = False
        self._calls: dict[int, _Call] = {}  # by block
        self._thinking: dict[int, _Thought] = {}  # by block
        self._thoughts = Thoughts()
        self._read = {
            "contentBlockDelta": self._delta,
            "contentBlockStart": self._start,
            "contentBlockStop": self._stop,
            "messageStop": self._message_stop,
            "metadata": self._metadata,
        }

    def read(self, frame: Frame) -> list[ChatChunk]:
        """The chunk in `frame`, if there is one; an exception or an error event is raised."""
        raise_exception(frame, self._hidden)
        reader = self._read.get(frame.headers.get(":event-type", ""))
        chunk = reader(frame.payload) if reader is not None else None
        return [] if chunk is None else [chunk]

    def _delta(self, payload: bytes) -> ChatChunk | None:
        event = decoded(_delta_decoder, payload, surrogates=True)
        delta = event.delta
        if delta.text is not None:
            return ChatChunk.text(delta.text)
        if delta.tool_use is not None:
            return self._arguments(event.content_block_index, delta.tool_use.input)
        if delta.reasoning_content is not None:
            return self._think(event.content_block_index, delta.reasoning_content)
        return None

    def _start(self, payload: bytes) -> ChatChunk | None:
        event = decoded(_start_decoder, payload)
        use = event.start.tool_use
        if use is None or use.type:
            return None  # of what the server runs itself, callers see the outcome
        call = self._calls[event.content_block_index] = _Call(len(self._calls))
        return ChatChunk.tool_call(call.position, id=use.tool_use_id or "", name=use.name or "")

    def _arguments(self, block: int, text: str) -> ChatChunk | None:
        call = self._calls.get(block)
        if call is None or not text:
            return None
        call.said = True
        return ChatChunk.tool_call(call.position, arguments=text)

    def _think(self, block: int, delta: WireReasoningDelta) -> ChatChunk | None:
        if delta.redacted_content is not None:
            self._thoughts.seal(delta.redacted_content)
            return None
        thought = self._thinking.setdefault(block, _Thought([]))
        if delta.signature:
            thought.signature += delta.signature
        if not delta.text:
            return None
        thought.texts.append(delta.text)
        return ChatChunk.reasoning(delta.text)

    def _stop(self, payload: bytes) -> ChatChunk | None:
        block = decoded(_stop_decoder, payload).content_block_index
        if thought := self._thinking.pop(block, None):
            self._thoughts.add("".join(thought.texts), thought.signature)
        call = self._calls.get(block)
        if call is None or call.said:
            return None
        call.said = True
        return ChatChunk.tool_call(call.position, arguments="{}")  # a call without arguments has no deltas

    def _message_stop(self, payload: bytes) -> ChatChunk:
        reason = read_finish(decoded(_message_decoder, payload).stop_reason)
        self._finished = True
        delta = Delta(thinking_blocks=self._thoughts.raw)
        return ChatChunk(choices=[ChunkChoice(delta=delta, finish_reason=reason)])

    def _metadata(self, payload: bytes) -> ChatChunk | None:
        event = decoded(_metadata_decoder, payload)
        self.complete = self._finished
        tier = read_tier(event.service_tier, self._asked_tier)
        return ChatChunk(service_tier=tier, usage=read_usage(event.usage) or UNSET)

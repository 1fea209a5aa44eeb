"""The events of a Messages stream as chunks.

`EventReader.read(event)` returns the chunk that an event amounts to, or None; an error event is raised. The stream is
whole once `complete` is true, which `message_stop` makes it, or `[DONE]` after a stop reason. The counts of
`message_start` come with the first content, for a caller who leaves. A chunk of their own would begin the answer, and
an error behind it would be final.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gateway import ChatChunk, ChunkChoice, Delta, Event, FunctionCall, ToolCallDelta
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_document
from gateway.sse import DONE_DATA

from .._shared.documents import UNREADABLE, decoded, json_object, raise_error_event
from .._shared.whole_stream import chunk_of
from .answer import (
    StopDetails,
    WireBlock,
    WireMessage,
    compact,
    finish_reason,
    read_completion,
    read_usage,
    thinking_blocks,
    used_tier,
)


class WireDelta(Struct):
    """What an event adds: to a block, or to the message."""

    type: str = ""
    text: str | None = ""
    thinking: str | None = ""
    signature: str | None = ""
    partial_json: str | None = ""
    stop_reason: str | None = None
    stop_details: StopDetails | None = None


class WireEvent(Struct):
    """An event of any type; what the others have is empty."""

    type: str = ""
    index: int | None = 0
    message: WireMessage | None = None
    content_block: WireBlock | None = None
    delta: WireDelta | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class _Text(Struct, frozen=True):
    type: str = ""
    text: str = ""


class _TextEvent(Struct):
    type: str = ""
    delta: _Text = _Text()


_text_decoder = msgspec.json.Decoder(_TextEvent)
_event_decoder = msgspec.json.Decoder(WireEvent)


class OpenBlock(Struct):
    """A content block under way."""

    block: WireBlock
    position: int = -1  # of a tool call among the calls
    thought: list[str] = []
    signed: list[str] = []
    argued: bool = False  # all or some of the arguments were sent


class EventReader:
    """Reads the events of one stream."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self.complete = False
        self._hidden = hidden
        self._blocks: dict[int, OpenBlock] = {}
        self._calls = 0
        self.usage: dict[str, Any] = {}  # the counts so far, as the upstream names them
        self._finished = False
        self._counted = False  # the first counts were passed on

    def chunks(self, event: Event) -> list[ChatChunk]:
        """`read` as a list."""
        chunk = self.read(event)
        return [] if chunk is None else [chunk]

    def read(self, event: Event) -> ChatChunk | None:
        """The chunk in `event`; None for one that says nothing to a caller."""
        if event.name == "error":
            raise_error_event(event.data, self._hidden)
        try:
            wire = _event_decoder.decode(event.data)
        except UNREADABLE:
            if self._is_odd(event):
                return None
            wire = decoded(_event_decoder, event.data, surrogates=True)
        if wire.type == "error" or wire.error is not None:
            raise error_of_document(wire.error or json_object(event.data), self._hidden)
        if wire.type == "content_block_delta" and wire.delta is not None:
            return self._added(wire.index or 0, wire.delta)
        if wire.type == "content_block_start" and wire.content_block is not None:
            return self._started(wire.index or 0, wire.content_block)
        if wire.type == "content_block_stop":
            return self._stopped(wire.index or 0)
        if wire.type == "message_start" and wire.message is not None:
            self._count(wire.message.usage)
        elif wire.type == "message_delta":
            self._count(wire.usage)
            return self._ended(wire.delta or WireDelta())
        elif wire.type == "message_stop":
            return self._end_whole()
        elif event.name == "error":
            raise_error_event(event.data, self._hidden)
        return None

    def _is_odd(self, event: Event) -> bool:
        """Whether an event is none of the dialect's, as servers send them that follow other vendors, too."""
        if event.data == DONE_DATA:  # after `message_stop`, or in its place
            self.complete = self.complete or self._finished
            return True
        return event.name == "ping"

    def read_whole(self, body: bytes) -> ChatChunk:
        """A whole answer as a single chunk, from a server that does not stream."""
        return chunk_of(read_completion(body, self._hidden))

    # Blocks ----------------------------------------------------------------------------------------------------------

    def _started(self, index: int, block: WireBlock) -> ChatChunk | None:
        if block.type == "tool_use":
            self._blocks[index] = OpenBlock(block, self._calls)
            self._calls += 1
            return self._stamped(ChatChunk.tool_call(self._calls - 1, id=block.id or "", name=block.name or ""))
        self._blocks[index] = opened = OpenBlock(block)
        if block.type == "thinking" and block.thinking:
            opened.thought.append(block.thinking)
            return self._stamped(ChatChunk.reasoning(block.thinking))
        return self._stamped(ChatChunk.text(block.text)) if block.type == "text" and block.text else None

    def _added(self, index: int, delta: WireDelta) -> ChatChunk | None:
        if delta.type == "text_delta":
            return self._stamped(ChatChunk.text(delta.text)) if delta.text else None
        opened = self._blocks.get(index)
        if opened is None and delta.type in ("thinking_delta", "signature_delta"):
            opened = self._blocks[index] = OpenBlock(WireBlock("thinking"))
        if opened is None:
            raise UpstreamInvalidResponse(detail=f"{delta.type[:40]} for a block that never began")
        if delta.type == "input_json_delta" and opened.position >= 0 and delta.partial_json:
            opened.argued = True
            return self._stamped(ChatChunk.tool_call(opened.position, arguments=delta.partial_json))
        if delta.type == "signature_delta":
            opened.signed.append(delta.signature or "")
        elif delta.type == "thinking_delta" and delta.thinking:
            opened.thought.append(delta.thinking)
            return self._stamped(ChatChunk.reasoning(delta.thinking))
        return None

    def _stopped(self, index: int) -> ChatChunk | None:
        """The arguments of a call that came without fragments: none, or at once with its start."""
        opened = self._blocks.get(index)
        if opened is None or opened.position < 0 or opened.argued:
            return None
        opened.argued = True
        return self._stamped(ChatChunk.tool_call(opened.position, arguments=compact(opened.block.input)))

    def _unstopped(self) -> list[ToolCallDelta]:
        """The arguments of calls that came at once with their start, and whose stop has not come."""
        fragments = []
        for opened in self._blocks.values():
            if opened.position >= 0 and not opened.argued:
                opened.argued = True
                function = FunctionCall(arguments=compact(opened.block.input))
                fragments.append(ToolCallDelta(opened.position, function=function))
        return fragments

    def _thoughts(self) -> list[WireBlock]:
        """The thinking of the whole answer, signed."""
        blocks = []
        for opened in self._blocks.values():
            block = opened.block
            if block.type == "thinking":
                signature = (block.signature or "") + "".join(opened.signed)
                block = WireBlock(block.type, thinking="".join(opened.thought), signature=signature)
            blocks.append(block)
        return blocks

    # The end ---------------------------------------------------------------------------------------------------------

    def _ended(self, delta: WireDelta) -> ChatChunk | None:
        chunk = self._stamped(ChatChunk(usage=read_usage(self.usage) or UNSET))
        if delta.stop_reason:
            out = Delta() if self._finished else Delta(thinking_blocks=thinking_blocks(self._thoughts()))
            self._finished = True
            out.tool_calls = self._unstopped() or UNSET
            if delta.stop_reason == "refusal" and delta.stop_details is not None and delta.stop_details.text:
                out.refusal = delta.stop_details.text
            chunk.choices = [ChunkChoice(0, out, finish_reason=finish_reason(delta.stop_reason))]
        return chunk if chunk.choices or chunk.usage is not UNSET else None

    def _end_whole(self) -> ChatChunk | None:
        """The end of the message, which is complete also where no event named a stop reason."""
        self.complete = True
        if self._finished:
            late = self._unstopped()
            return ChatChunk(choices=[ChunkChoice(0, Delta(tool_calls=late))]) if late else None
        if not self._blocks:
            raise UpstreamInvalidResponse(detail="message_stop without content and stop reason")
        return self._ended(WireDelta(stop_reason="end_turn"))

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Take over the counts so far: they are totals, and what a later event leaves out still holds.

        So does what it counts as 0: some servers count the prompt in `message_start` only.
        """
        for name, value in (usage or {}).items():
            if value is not None and (value != 0 or not self.usage.get(name)):
                self.usage[name] = value

    def _stamped(self, chunk: ChatChunk) -> ChatChunk:
        chunk.service_tier = used_tier(self.usage)
        if not self._counted:
            self._counted = True
            if chunk.usage is UNSET:
                chunk.usage = read_usage(self.usage) or UNSET
        return chunk


def read_text(data: bytes) -> str | None:
    """The text in the data of an event that adds to a block of text; None for any other."""
    try:
        wire = _text_decoder.decode(data)
    except UNREADABLE:
        return None
    return wire.delta.text if (wire.type, wire.delta.type) == ("content_block_delta", "text_delta") else None

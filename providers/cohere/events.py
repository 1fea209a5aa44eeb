"""The events of a Cohere stream as chunks.

`EventReader.read(event)` returns the chunk that an event amounts to, or None. The stream is whole once `complete` is
true, which only `message-end` makes it. Sharp edge: several fields hold an object in one kind of event and an empty
list in another, `message-start`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gateway import ChatChunk, Event

from .answer import (
    FAILED_REASONS,
    WireContent,
    WireLogprobs,
    WireToolCall,
    failure,
    finish_reason,
    read_document,
    read_logprobs,
    read_usage,
)


class WireDeltaMessage(Struct):
    """What an event adds to the message."""

    content: WireContent | list[Any] | None = None
    tool_calls: WireToolCall | list[Any] | None = None
    tool_plan: str | None = None


class WireDelta(Struct):
    """What an event adds, or how the message ended."""

    message: WireDeltaMessage | None = None
    finish_reason: str | None = None
    usage: Any = None
    error: Any = None


class WireEvent(Struct):
    """An event of any type; what the others have is empty."""

    type: str
    index: int | None = None
    delta: WireDelta | None = None
    logprobs: WireLogprobs | None = None


class OpenCall(Struct):
    """A tool call under way."""

    position: int
    said: bool = False  # some of its arguments have come


_decoder = msgspec.json.Decoder(WireEvent)
_NOTHING = WireDelta()
_NO_MESSAGE = WireDeltaMessage()


class EventReader:
    """Reads the events of one stream."""

    def __init__(self, hidden: Sequence[str] = ()) -> None:
        self.complete = False
        self._hidden = hidden
        self._calls: dict[int, OpenCall] = {}  # by Cohere's index
        self._newest = 0

    def read(self, event: Event) -> ChatChunk | None:
        """The chunk in `event`; None for one that says nothing to callers."""
        wire = read_document(_decoder, event.data, self._hidden, surrogates=True)
        delta = wire.delta or _NOTHING
        message = delta.message or _NO_MESSAGE
        match wire.type:
            case "content-start" | "content-delta":
                return _content(message, wire.logprobs)
            case "tool-plan-delta":
                return ChatChunk.reasoning(message.tool_plan) if message.tool_plan else None
            case "tool-call-start":
                return self._start(wire.index, message)
            case "tool-call-delta":
                return self._arguments(wire.index, message)
            case "tool-call-end":
                return self._end(wire.index)
            case "message-end":
                return self._message_end(delta)
        return None

    def _start(self, index: int | None, message: WireDeltaMessage) -> ChatChunk | None:
        call = message.tool_calls
        if not isinstance(call, WireToolCall):
            return None
        self._newest = len(self._calls) if index is None else index
        opened = self._calls[self._newest] = OpenCall(len(self._calls))
        function = call.function
        arguments = (function.arguments if function else None) or ""
        opened.said = bool(arguments)
        name = (function.name if function else None) or ""
        return ChatChunk.tool_call(opened.position, id=call.id or "", name=name, arguments=arguments)

    def _arguments(self, index: int | None, message: WireDeltaMessage) -> ChatChunk | None:
        opened = self._calls.get(self._newest if index is None else index)
        call = message.tool_calls
        if opened is None or not isinstance(call, WireToolCall) or call.function is None:
            return None
        if not call.function.arguments:
            return None
        opened.said = True
        return ChatChunk.tool_call(opened.position, arguments=call.function.arguments)

    def _end(self, index: int | None) -> ChatChunk | None:
        opened = self._calls.get(self._newest if index is None else index)
        if opened is None or opened.said:
            return None
        opened.said = True
        return ChatChunk.tool_call(opened.position, arguments="{}")  # a call without arguments has no deltas

    def _message_end(self, delta: WireDelta) -> ChatChunk:
        reason = delta.finish_reason or ""
        if delta.error or reason in FAILED_REASONS:
            raise failure(reason, delta.error, self._hidden)
        self.complete = True
        chunk = ChatChunk.finish(finish_reason(reason))
        chunk.usage = read_usage(delta.usage) or UNSET
        return chunk


def _content(message: WireDeltaMessage, logprobs: WireLogprobs | None) -> ChatChunk | None:
    """A piece of text or of thought; how a block begins is one too, though an empty one as a rule."""
    piece = message.content
    if not isinstance(piece, WireContent):
        return None
    if piece.thinking:
        return ChatChunk.reasoning(piece.thinking)
    if not piece.text:
        return None
    chunk = ChatChunk.text(piece.text)
    if logprobs is not None:
        chunk.choices[0].logprobs = read_logprobs([logprobs])
    return chunk

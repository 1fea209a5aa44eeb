"""The content blocks of a streamed Messages answer: which is open, and the frames that open, extend and close them.

A dialect like OpenAI's names no end of a tool call, and an upstream may alternate between the arguments of several
calls. So a call is closed before the next one opens only if its arguments are complete JSON. Otherwise it stays open
until the answer ends, as clients find a block by its index.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from gateway.encoders.messages.form import frame, sealed_call
from gateway.schemas.chat_response import ToolCallDelta

TEXT, THINKING = "text", "thinking"


class OpenCall(Struct):
    """A tool call under way."""

    index: int  # of its block
    arguments: str = ""


class ContentBlocks:
    """The blocks of one answer."""

    __slots__ = ("_calls", "_models", "count", "kind")

    def __init__(self, models: tuple[str, ...]) -> None:
        self._models = models  # the requested name, and that of the answer
        self.count = 0  # of blocks that were opened
        self.kind = ""  # of the block of text or thinking that is open; "" if there is none
        self._calls: dict[int, OpenCall] = {}  # by the number of the call

    @property
    def index(self) -> int:
        """The index of the newest block."""
        return self.count - 1

    def text(self, text: str) -> bytes:
        """The frames of visible text."""
        return self._open_plain(TEXT) + self._delta(self.index, {"type": "text_delta", "text": text})

    def thinking(self, text: str) -> bytes:
        """The frames of thinking."""
        return self._open_plain(THINKING) + self._delta(self.index, {"type": "thinking_delta", "thinking": text})

    def signature(self, text: str) -> bytes:
        """The frame of the signature of the thinking that is open."""
        return self._delta(self.index, {"type": "signature_delta", "signature": text})

    def whole(self, block: dict[str, Any]) -> bytes:
        """The frames of a block that has no parts."""
        return self._close_plain() + self._start(block) + self._stop(self.index)

    def call(self, fragment: ToolCallDelta) -> bytes:
        """The frames of a part of a tool call, which has a number."""
        assert isinstance(fragment.index, int)
        function = fragment.function or None
        arguments = (function.arguments or "") if function is not None else ""
        frames = b""
        call = self._calls.get(fragment.index)
        if call is None:
            frames = self._close_before_call()
            if fragment.extra_content is not UNSET:
                frames += self.whole(sealed_call(fragment.id or "", fragment.extra_content, self._models))
            name = (function.name or "") if function is not None else ""
            frames += self._start({"type": "tool_use", "id": fragment.id or "", "name": name, "input": {}})
            call = self._calls[fragment.index] = OpenCall(self.index)
        if arguments and call.index >= 0:
            call.arguments += arguments
            frames += self._delta(call.index, {"type": "input_json_delta", "partial_json": arguments})
        return frames

    def close(self) -> bytes:
        """The frames that close all open blocks."""
        frames = self._close_plain()
        for call in self._calls.values():
            if call.index >= 0:
                frames += self._stop(call.index)
                call.index = -1
        return frames

    # Blocks that an upstream of this dialect wrote --------------------------------------------------------------------

    def started(self, kind: str) -> None:
        """An upstream's own event has opened a block."""
        self.count += 1
        self.kind = kind if kind in (TEXT, THINKING) else ""

    def stopped(self) -> None:
        """An upstream's own event has closed it."""
        self.kind = ""

    # Frames ----------------------------------------------------------------------------------------------------------

    def _open_plain(self, kind: str) -> bytes:
        if self.kind == kind:
            return b""
        frames = self.close()
        block = {"type": TEXT, "text": ""} if kind == TEXT else {"type": THINKING, "thinking": "", "signature": ""}
        frames += self._start(block)
        self.kind = kind
        return frames

    def _close_plain(self) -> bytes:
        if not self.kind:
            return b""
        self.kind = ""
        return self._stop(self.index)

    def _close_before_call(self) -> bytes:
        frames = self._close_plain()
        for call in self._calls.values():
            if call.index >= 0 and _is_complete(call.arguments):
                frames += self._stop(call.index)
                call.index = -1
        return frames

    def _start(self, block: dict[str, Any]) -> bytes:
        self.count += 1
        document = {"type": "content_block_start", "index": self.index, "content_block": block}
        return frame("content_block_start", document)

    def _delta(self, index: int, delta: dict[str, Any]) -> bytes:
        return frame("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})

    def _stop(self, index: int) -> bytes:
        return frame("content_block_stop", {"type": "content_block_stop", "index": index})


def _is_complete(arguments: str) -> bool:
    """Whether the arguments of a call are a whole JSON text."""
    try:
        msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True

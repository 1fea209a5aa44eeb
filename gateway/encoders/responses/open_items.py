"""The items of a stream that are not complete: each writes its own events."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.encoders.responses.custom_input import CustomInput
from gateway.encoders.responses.events import Events
from gateway.encoders.responses.items import (
    CalledTool,
    call_item,
    item_id,
    message_item,
    reasoning_item,
    refusal_part,
    summary_part,
    text_part,
)
from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.reasoning_state import ReasoningState

_encode = msgspec.json.Encoder().encode


class OpenItem:
    """An item that was announced; `position` is its output index."""

    __slots__ = ("events", "id", "place", "position")

    prefix = ""

    def __init__(self, events: Events, suffix: str, position: int) -> None:
        self.events, self.position = events, position
        self.id = item_id(self.prefix, suffix, position)
        self.place = b'"item_id":%b,"output_index":%d' % (_encode(self.id), position)

    def added(self, item: bytes) -> bytes:
        """The event that announces the item."""
        return self.events.frame("response.output_item.added", b'"output_index":%d,"item":%b' % (self.position, item))

    def done(self, item: bytes) -> bytes:
        """The event that completes the item."""
        return self.events.frame("response.output_item.done", b'"output_index":%d,"item":%b' % (self.position, item))


class OpenMessage(OpenItem):
    """A message; one part is open at a time."""

    __slots__ = ("_kind", "_parts", "annotations", "logprobs", "texts")

    prefix = "msg"

    def __init__(self, events: Events, suffix: str, position: int) -> None:
        super().__init__(events, suffix, position)
        self.texts: list[str] = []  # of the open part
        self.annotations: list[Any] = []
        self.logprobs: list[Any] = []
        self._kind = ""  # of the open part: output_text or refusal
        self._parts: list[bytes] = []

    def go_on(self, item: str, text: str) -> None:
        """Be the message of that id, whose first part is open and has this text."""
        self.id = item
        self.place = b'"item_id":%b,"output_index":%d' % (_encode(item), self.position)
        self._kind, self.texts = "output_text", [text]

    @property
    def part_place(self) -> bytes:
        """The members that say which part an event is about."""
        return b'%b,"content_index":%d' % (self.place, len(self._parts))

    def begin(self) -> bytes:
        """The event that announces it."""
        return self.added(message_item(self.id, (), "in_progress"))

    def text(self, text: str, logprobs: list[Any] | None = None, padding: bytes = b"") -> bytes:
        """The events of a piece of text."""
        begun = self._turn_to("output_text")
        self.texts.append(text)
        if logprobs:
            self.logprobs += logprobs
        members = b'%b,"delta":%b,"logprobs":%b%b' % (
            self.part_place,
            _encode(text),
            encode_whole(logprobs or []),
            padding,
        )
        return begun + self.events.frame("response.output_text.delta", members)

    def refusal(self, text: str) -> bytes:
        """The events of a piece of a refusal."""
        begun = self._turn_to("refusal")
        self.texts.append(text)
        return begun + self.events.frame("response.refusal.delta", b'%b,"delta":%b' % (self.part_place, _encode(text)))

    def annotate(self, annotations: list[Any]) -> bytes:
        """The events of annotations of the text."""
        frames = [self._turn_to("output_text")]
        for one in annotations:
            members = b'%b,"annotation_index":%d,"annotation":%b' % (
                self.part_place,
                len(self.annotations),
                encode_whole(one),
            )
            frames.append(self.events.frame("response.output_text.annotation.added", members))
            self.annotations.append(one)
        return b"".join(frames)

    def end(self, status: str) -> tuple[bytes, bytes]:
        """The last events, and the item."""
        frames = self._end_part()
        item = message_item(self.id, self._parts, status)
        return frames + self.done(item), item

    def _turn_to(self, kind: str) -> bytes:
        if self._kind == kind:
            return b""
        ended = self._end_part()
        self._kind = kind
        part = text_part("", logprobs=()) if kind == "output_text" else refusal_part("")
        return ended + self.events.frame("response.content_part.added", b'%b,"part":%b' % (self.part_place, part))

    def _end_part(self) -> bytes:
        if not self._kind:
            return b""
        text = "".join(self.texts)
        if self._kind == "output_text":
            part = text_part(text, self.annotations, self.logprobs)
            members = b'%b,"text":%b,"logprobs":%b' % (self.part_place, _encode(text), encode_whole(self.logprobs))
        else:
            part, members = refusal_part(text), b'%b,"refusal":%b' % (self.part_place, _encode(text))
        frames = self.events.frame(f"response.{self._kind}.done", members)
        frames += self.events.frame("response.content_part.done", b'%b,"part":%b' % (self.part_place, part))
        self._parts.append(part)
        self.texts, self.annotations, self.logprobs, self._kind = [], [], [], ""
        return frames


class OpenReasoning(OpenItem):
    """Reasoning; its text ends where other content begins, and the item with the answer: signatures come last."""

    __slots__ = ("_begun", "_ended", "_texts")

    prefix = "rs"

    def __init__(self, events: Events, suffix: str, position: int) -> None:
        super().__init__(events, suffix, position)
        self._texts: list[str] = []
        self._begun = self._ended = False

    @property
    def is_written(self) -> bool:
        """Whether its text is complete."""
        return self._ended

    def begin(self) -> bytes:
        """The event that announces it."""
        return self.added(reasoning_item(self.id, "", None))

    def text(self, text: str) -> bytes:
        """The events of a piece of text."""
        frames = b""
        if not self._begun:
            self._begun = True
            members = b'%b,"summary_index":0,"part":%b' % (self.place, summary_part(""))
            frames = self.events.frame("response.reasoning_summary_part.added", members)
        self._texts.append(text)
        members = b'%b,"summary_index":0,"delta":%b' % (self.place, _encode(text))
        return frames + self.events.frame("response.reasoning_summary_text.delta", members)

    def end_text(self) -> bytes:
        """The last events of its text."""
        if self._ended or not self._begun:
            self._ended = True
            return b""
        self._ended, text = True, "".join(self._texts)
        members = b'%b,"summary_index":0,"text":%b' % (self.place, _encode(text))
        frames = self.events.frame("response.reasoning_summary_text.done", members)
        members = b'%b,"summary_index":0,"part":%b' % (self.place, summary_part(text))
        return frames + self.events.frame("response.reasoning_summary_part.done", members)

    def end(self, state: ReasoningState) -> tuple[bytes, bytes]:
        """The last events, and the item."""
        frames = self.end_text()
        item = reasoning_item(self.id, "".join(self._texts), state)
        return frames + self.done(item), item


class OpenCall(OpenItem):
    """A call of a function."""

    __slots__ = ("_call_id", "_texts", "_tool")

    prefix = "fc"
    kind = "response.function_call_arguments"

    def __init__(self, events: Events, suffix: str, position: int, *, call_id: str, tool: CalledTool) -> None:
        super().__init__(events, suffix, position)
        self._call_id, self._tool = call_id, tool
        self._texts: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are a JSON document, so that nothing is likely to follow."""
        try:
            msgspec.json.decode("".join(self._texts), type=msgspec.Raw)
        except msgspec.MsgspecError:
            return False
        return True

    def begin(self) -> bytes:
        """The event that announces it."""
        return self.added(self._item("", "in_progress"))

    def arguments(self, piece: str) -> bytes:
        """The event of a piece of its arguments."""
        if not piece:
            return b""
        self._texts.append(piece)
        return self._delta(piece)

    def end(self, status: str) -> tuple[bytes, bytes]:
        """The last events, and the item."""
        frames = b""
        if not self._texts:
            frames = self.arguments("{}")
        text = "".join(self._texts)
        members = b'%b,%b,"arguments":%b' % (self.place, self._tool.members, _encode(text))
        item = self._item(text, status)
        return frames + self.events.frame(f"{self.kind}.done", members) + self.done(item), item

    def _delta(self, text: str) -> bytes:
        return self.events.frame(f"{self.kind}.delta", b'%b,"delta":%b' % (self.place, _encode(text)))

    def _item(self, text: str, status: str) -> bytes:
        return call_item(self.id, self._call_id, self._tool, text, status=status)


class OpenCustomCall(OpenCall):
    """A call of a custom tool, which the upstream has as a function with one string."""

    __slots__ = ("_input",)

    prefix = "ctc"
    kind = "response.custom_tool_call_input"

    def __init__(self, events: Events, suffix: str, position: int, *, call_id: str, tool: CalledTool) -> None:
        super().__init__(events, suffix, position, call_id=call_id, tool=tool)
        self._input = CustomInput()

    def arguments(self, piece: str) -> bytes:
        self._texts.append(piece)
        text = self._input.feed(piece)
        return self._delta(text) if text else b""

    def end(self, status: str) -> tuple[bytes, bytes]:
        rest = self._input.end()
        frames = self._delta(rest) if rest else b""
        text = self._input.text
        item = self._item(text, status)
        frames += self.events.frame(f"{self.kind}.done", b'%b,"input":%b' % (self.place, _encode(text)))
        return frames + self.done(item), item

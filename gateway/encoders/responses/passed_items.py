"""The items of an upstream's stream that were passed on as they came, in case plain chunks must follow them.

Only an open text can go on, so the message that is open and the complete items before it are kept. After any other
event nothing may follow.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct, field

MOST_ITEMS, MOST_BYTES = 64, 1 << 20  # of complete items; nothing may follow more

#: Events that change no item, or only the text of one.
WITHOUT_ITEMS = frozenset({
    "response.created", "response.in_progress", "response.queued", "response.output_text.delta",
    "response.reasoning_summary_part.added", "response.reasoning_summary_part.done",
    "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
    "response.reasoning_text.delta", "response.reasoning_text.done", "keepalive",
})  # fmt: skip


class _Item(Struct):
    id: str = ""
    type: str = ""


class _Part(Struct):
    type: str = ""


class _Added(Struct):
    output_index: int
    item: _Item


class _PartAdded(Struct):
    part: _Part
    content_index: int = -1


class _Done(Struct):
    output_index: int
    item: Raw


_added = msgspec.json.Decoder(_Added)
_part_added = msgspec.json.Decoder(_PartAdded)
_done = msgspec.json.Decoder(_Done)


class PassedItems(Struct):
    """What is known of the items."""

    is_any: bool = False  # an event was passed on
    has_other: bool = False  # of which nothing is known here
    message: str = ""  # the id of the message
    position: int = -1  # its output index
    has_text: bool = False  # its first part is a text
    done: dict[int, bytes] = field(default_factory=dict)
    size: int = 0  # bytes of `done`

    def note(self, name: str, data: bytes) -> None:
        """An event was passed on that is none of `WITHOUT_ITEMS`."""
        try:
            self._note(name, data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.has_other = True

    def _note(self, name: str, data: bytes) -> None:
        if name == "response.output_item.added":
            added = _added.decode(data)
            if added.item.type == "message" and not self.message and added.item.id:
                self.message, self.position = added.item.id, added.output_index
            elif added.item.type != "reasoning" or self.message:
                self.has_other = True
        elif name == "response.output_item.done" and not self.message:
            ended = _done.decode(data)
            self.done[ended.output_index] = bytes(ended.item)
            self.size += len(ended.item)
            self.has_other = self.has_other or self.size > MOST_BYTES or len(self.done) > MOST_ITEMS
        elif name == "response.content_part.added" and self.message and not self.has_text:
            added_part = _part_added.decode(data)
            self.has_text = added_part.part.type == "output_text" and added_part.content_index == 0
            self.has_other = self.has_other or not self.has_text
        else:
            self.has_other = True
        if self.has_other:
            self.done.clear()

    @property
    def may_go_on(self) -> bool:
        """Whether more text may follow: one text is open, and all items before it are complete."""
        return not self.has_other and self.has_text and sorted(self.done) == list(range(self.position))

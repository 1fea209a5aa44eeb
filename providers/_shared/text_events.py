"""Texts of an event stream that pass its reader by: from the bytes of an event straight into the text lane.

An event that differs from an earlier one only in its text needs no decoding. A dialect says what the text of an event
is, and the template of such events: `FrameTemplate` where nothing but the text varies, or one of its own.
`TextEvents.takes` is for `Answer.read_events`. Sharp edge: a reader that keeps state for an event must not let it pass
while that state matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET, Struct, field

from gateway import ChatChunk, Event, TextLane
from gateway.sse import FrameTemplate, around, frame_of

#: Templates that are made in a row without an event that fits one. Some servers write the present second into each
#: chunk, so that a template fits as long; others vary every chunk.
MAX_UNUSED = 8


class Template(Protocol):
    """What events with the same meaning look like, except for their texts."""

    def texts(self, chunk: bytes) -> list[str] | None:
        """The texts of a chunk that contains only complete events of this template; otherwise None."""


class TextEvents(Struct, eq=False):
    """The texts of one stream."""

    lane: TextLane
    read: Callable[[bytes], str | None]  # the text in the data of an event of which it is all; None for any other
    make: Callable[[bytes, bytes], Template] = FrameTemplate  # from the bytes of a frame around its text
    is_counted: bool = False  # chunks with counts may pass, and whoever reads the stream keeps these
    template: Template | None = None  # of the last chunk that could have passed
    sample: ChatChunk = field(default_factory=ChatChunk)  # that chunk
    unused_left: int = MAX_UNUSED
    passed: bytes = b""  # the last piece that passed, with its counts

    def takes(self, piece: bytes) -> bool:
        """Whether a piece of the stream says nothing but more text, and the lane took it."""
        template = self.template
        if template is None:
            return False
        take = self.lane.take
        if take is None:
            return False
        texts = template.texts(piece)
        if texts is None or not take(self.sample, texts):
            return False
        self.unused_left = MAX_UNUSED
        if self.is_counted:
            self.passed = piece
        return True

    def set_template(self, event: Event, chunk: ChatChunk) -> None:
        """Make the template of an event and its chunk, for the next ones to pass.

        For a server that varies each event none is made after a few. Counts are for the gateway to see each time, so
        mostly a chunk with a usage makes none.
        """
        if not self.unused_left or self.lane.take is None or not (self.is_counted or chunk.usage is UNSET):
            return
        text = chunk.choices[0].delta.content if len(chunk.choices) == 1 else None
        if not isinstance(text, str) or not text:
            return
        if self.template is None or self.template.texts(frame_of(event)) is None:
            self.unused_left -= 1
            parts = around(event, text, self.read)
            self.template = None if parts is None else self.make(*parts)
        self.sample = chunk

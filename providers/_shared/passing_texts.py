"""Texts of an event stream that pass its reader by: from the bytes of an event straight into the text lane.

An event that differs from an earlier one only in its text needs no decoding. A dialect says what the text of an event
is, and the template of such events: `FrameTemplate` where nothing but the text varies, or one of its own.
`PassingTexts.past` is for `Answer.read_events`. Sharp edge: a reader that keeps state for an event must not let it pass
while that state matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET, Struct, field

from gateway import ChatChunk, Event, TextLane
from gateway.sse import FrameTemplate, around, frame_of

#: Chunks in a row that are taken for the likeness of the next ones, and were not. Some servers write the present second
#: into each chunk, so that a likeness lasts as long; others vary every chunk.
MAX_CASTS = 8


class Template(Protocol):
    """What events with the same meaning look like, except for their texts."""

    def texts(self, chunk: bytes) -> list[str] | None:
        """The texts of a chunk that contains only complete events of this template; otherwise None."""


class PassingTexts(Struct, eq=False):
    """The texts of one stream."""

    lane: TextLane
    read: Callable[[bytes], str | None]  # the text in the data of an event of which it is all; None for any other
    make: Callable[[bytes, bytes], Template] = FrameTemplate  # from the bytes of a frame around its text
    is_counted: bool = False  # chunks with counts may pass, and whoever reads the stream keeps these
    template: Template | None = None  # of the last chunk that could have passed
    like: ChatChunk = field(default_factory=ChatChunk)  # that chunk
    casts: int = MAX_CASTS
    passed: bytes = b""  # the last piece that passed, with its counts

    def past(self, piece: bytes) -> bool:
        """Whether a piece of the stream says nothing but more text, and the lane took it."""
        template = self.template
        if template is None:
            return False
        take = self.lane.take
        if take is None:
            return False
        texts = template.texts(piece)
        if texts is None or not take(self.like, texts):
            return False
        self.casts = MAX_CASTS
        if self.is_counted:
            self.passed = piece
        return True

    def cast(self, event: Event, chunk: ChatChunk) -> None:
        """Remember what the chunk of an event looks like, for the next ones to pass; a server that varies it is soon
        let alone. Counts are for the gateway to see each time, so mostly a chunk with a usage lets none pass."""
        if not self.casts or self.lane.take is None or not (self.is_counted or chunk.usage is UNSET):
            return
        text = chunk.choices[0].delta.content if len(chunk.choices) == 1 else None
        if not isinstance(text, str) or not text:
            return
        if self.template is None or self.template.texts(frame_of(event)) is None:
            self.casts -= 1
            parts = around(event, text, self.read)
            self.template = None if parts is None else self.make(*parts)
        self.like = chunk

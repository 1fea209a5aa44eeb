"""Texts of an event stream that pass its reader by: from the bytes of an event straight into the text lane.

An event that differs from an earlier one only in its text needs no decoding. A dialect gives the template of such
events: `FrameTemplate` where nothing but the text varies, or one of its own. `PassingTexts.past` is for
`Answer.read_events`. Sharp edge: a reader that keeps state for an event must not let it pass while that state matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import UNSET

from gateway import ChatChunk, Event, TextLane
from gateway.sse import frame_of

#: Chunks in a row that are taken for the likeness of the next ones, and were not. Some servers write the present second
#: into each chunk, so that a likeness lasts as long; others vary every chunk.
MAX_CASTS = 8


class Template(Protocol):
    """What events with the same meaning look like, except for their texts."""

    def texts(self, chunk: bytes) -> list[str] | None:
        """The texts of a chunk that contains only complete events of this template; otherwise None."""


#: The template of an event with this text; None if there is none.
MakeTemplate = Callable[[Event, str], Template | None]


class PassingTexts:
    """The texts of one stream."""

    __slots__ = ("_casts", "_is_counted", "_like", "_make", "_template", "lane", "passed")

    def __init__(self, lane: TextLane, make: MakeTemplate, *, is_counted: bool = False) -> None:
        self.lane = lane
        self._is_counted = is_counted  # chunks with counts may pass, and whoever reads the stream keeps these
        self._make = make
        self._template: Template | None = None  # of the last chunk that could have passed
        self._like = ChatChunk()  # that chunk
        self._casts = MAX_CASTS
        self.passed = b""  # the last piece that passed, with its counts

    def past(self, piece: bytes) -> bool:
        """Whether a piece of the stream says nothing but more text, and the lane took it."""
        template = self._template
        if template is None:
            return False
        take = self.lane.take
        if take is None:
            return False
        texts = template.texts(piece)
        if texts is None or not take(self._like, texts):
            return False
        self._casts = MAX_CASTS
        if self._is_counted:
            self.passed = piece
        return True

    def cast(self, event: Event, chunk: ChatChunk) -> None:
        """Remember what the chunk of an event looks like, for the next ones to pass; a server that varies it is soon
        let alone. Counts are for the gateway to see each time, so mostly a chunk with a usage lets none pass."""
        if self._casts and self.lane.take is not None and (self._is_counted or chunk.usage is UNSET):
            self._cast(event, chunk)

    def _cast(self, event: Event, chunk: ChatChunk) -> None:
        text = _text_of(chunk)
        if not text:
            return
        if self._template is None or self._template.texts(frame_of(event)) is None:
            self._casts -= 1
            self._template = self._make(event, text)
        self._like = chunk


def _text_of(chunk: ChatChunk) -> str | None:
    """The text of a chunk with one choice."""
    text = chunk.choices[0].delta.content if len(chunk.choices) == 1 else None
    return text if isinstance(text, str) else None

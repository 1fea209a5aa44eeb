"""Frames of Gemini's that differ in nothing but their text and their counts: they pass the reader by.

Each frame has the counts so far. Those of a frame that passed are kept, and read only if the next frame has none.
Sharp edge: only the first candidate's frames pass, and only where its text is all that the candidate has.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway import Event
from gateway.sse import CR, EventParser, texts_of_several

from .._shared.documents import UNREADABLE
from .._shared.text_events import TextEvents

COUNTS = b'"usageMetadata"'
#: Turns each digit into 0. A count with one more digit is another form, which comes once in ten, a hundred … tokens.
_ZEROS = bytes(b"0"[0] if 0x30 <= code <= 0x39 else code for code in range(256))


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[dict[str, str]]
    role: str = ""


class _Candidate(msgspec.Struct, forbid_unknown_fields=True):
    """A candidate of which a text is all that is new."""

    content: _Content
    index: int = 0


class _Frame(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate]
    usage_metadata: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Frame)
_decode_text = msgspec.json.Decoder(str).decode
_table = msgspec.json.Decoder(dict[str, Raw])


class CountedTemplate:
    """The bytes of such a frame before its text, between text and counts, and the rest with 0 for each digit."""

    __slots__ = ("_before", "_begin", "_middle", "_rest", "_size", "_tail")

    def __init__(self, before: bytes, after: bytes) -> None:
        """`before` and `after` are the bytes of the frame around the text."""
        middle, found, rest = after.partition(COUNTS)
        self._before, self._begin = before, len(before)
        self._middle = b'"' + middle + found
        self._size = len(self._middle)
        self._rest = rest.translate(_ZEROS)
        self._tail = self._size + len(rest)

    def texts(self, chunk: bytes) -> list[str] | None:
        """The texts of a chunk that contains only complete frames of this template; otherwise None."""
        if CR in chunk:  # Google ends lines with CRLF; JSON has no bare CR inside of texts
            chunk = chunk.replace(b"\r\n", b"\n")
        begin, at = self._begin, len(chunk) - self._tail
        if (
            at < begin
            or not chunk.startswith(self._before)
            or not chunk.startswith(self._middle, at)
            or chunk[at + self._size :].translate(_ZEROS) != self._rest
        ):
            return texts_of_several(chunk, self.texts)
        try:
            return [_decode_text(chunk[begin : at + 1])]
        except UNREADABLE:
            return texts_of_several(chunk, self.texts)


def read_text(data: bytes) -> str | None:
    """The text in the data of such a frame; None for any other."""
    try:
        frame = _decoder.decode(data)
    except UNREADABLE:
        return None
    [one] = frame.candidates if len(frame.candidates) == 1 else [None]
    if one is None or one.index or len(one.content.parts) != 1 or one.content.parts[0].keys() != {"text"}:
        return None
    return one.content.parts[0]["text"]


class TextFrames(TextEvents):
    """The texts of one stream; the counts of the last frame that passed are given when they are needed."""

    def events(self, event: Event) -> tuple[Event, ...]:
        """The event that follows; before it one with the counts of the frames that passed, if it has none itself."""
        passed, self.passed = self.passed, b""
        if not passed or COUNTS in event.data:
            return (event,)
        *_, last = EventParser().feed(passed)
        counts = _table.decode(last.data).get("usageMetadata")
        return (event,) if counts is None else (Event(b'{"usageMetadata":%b}' % bytes(counts)), event)

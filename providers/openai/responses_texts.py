"""Events of the Responses API that differ in nothing but their text and their number."""

from __future__ import annotations

import re

import msgspec

from gateway.sse import texts_of_several

from .._shared.documents import UNREADABLE

TEXT = "response.output_text.delta"
_NUMBER = re.compile(rb'"sequence_number": ?(\d+)')


class _Delta(msgspec.Struct):
    type: str = ""
    delta: str = ""


_decode_text = msgspec.json.Decoder(str).decode
_decoder = msgspec.json.Decoder(_Delta)


class NumberedTemplate:
    """The bytes of such an event: before its number, between number and text, and after the text.

    Servers write the number before or after the text, or leave it out.
    """

    __slots__ = ("_after", "_before", "_is_first", "_middle")

    def __init__(self, before: bytes, after: bytes) -> None:
        """`before` and `after` are the bytes of the frame around the text, with a number in one of them or in none."""
        self._middle = b""
        self._is_first = True  # the number stands before the text
        if (found := _NUMBER.search(before)) is not None:
            before, self._middle = before[: found.start(1)], before[found.end(1) :]
        elif (found := _NUMBER.search(after)) is not None:
            self._middle, after = after[: found.start(1)], after[found.end(1) :]
            self._is_first = False
        self._before, self._after = before, after

    def texts(self, chunk: bytes) -> list[str] | None:
        """The texts of a chunk that contains only complete events of this template; otherwise None."""
        before, middle, after = self._before, self._middle, self._after
        if not (chunk.startswith(before) and chunk.endswith(after)):
            return None
        quoted = chunk[len(before) : len(chunk) - len(after)]
        if middle:
            first, found, last = quoted.partition(middle) if self._is_first else quoted.rpartition(middle)
            number, quoted = (first, last) if self._is_first else (last, first)
            if not (found and number.isdigit()):
                return texts_of_several(chunk, self.texts)
        try:
            return [_decode_text(quoted)]
        except UNREADABLE:
            return texts_of_several(chunk, self.texts)


def read_text(data: bytes) -> str | None:
    """The text in the data of such an event; None for any other."""
    try:
        wire = _decoder.decode(data)
    except UNREADABLE:
        return None
    return wire.delta if wire.type == TEXT else None

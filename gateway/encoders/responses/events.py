"""Writes the events of a stream, numbered from 0."""

from __future__ import annotations


class Events:
    """The events of one stream; `number` is that of the next one."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def frame(self, kind: str, members: bytes) -> bytes:
        """The event `kind`; `members` are those of its object beside its type and its number."""
        name, number = kind.encode(), self.number
        self.number += 1
        return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b}\n\n' % (name, name, number, members)

"""Decodes bytes into the choices that make a case: every sequence of bytes makes one.

So the same code makes random cases, cases that a fuzzer changes byte by byte, and smaller cases of a fault. Bytes after
the end are zeros, and a zero chooses the first option, the shortest list and "no".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """One sequence of choices."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, end: int) -> int:
        """A number from 0 to `end` - 1."""
        value = self._byte()
        for _ in range((end - 1).bit_length() // 8):
            value = value << 8 | self._byte()
        return value % end

    def number(self, first: int, last: int) -> int:
        """A number from `first` to `last`."""
        return first + self.below(last - first + 1)

    def one_in(self, count: int) -> bool:
        """True once in `count` times."""
        return self.below(count) == count - 1

    def pick(self, *options: T) -> T:
        """One of them."""
        return options[self.below(len(options))]

    def of(self, options: Sequence[T]) -> T:
        """One of a sequence."""
        return options[self.below(len(options))]

    def many(self, make: Callable[[], T], most: int, *, least: int = 0) -> list[T]:
        """A list of what `make` returns."""
        return [make() for _ in range(self.number(least, most))]

    def data(self, most: int) -> bytes:
        """Any bytes."""
        return bytes(self._byte() for _ in range(self.below(most + 1)))

    def text(self, most: int) -> str:
        """Any characters, mostly ASCII."""
        return "".join(map(self._character, range(self.below(most + 1))))

    def _character(self, _: int) -> str:
        point = self._byte()
        if point >= 0xF8:
            point = (0x10FFFF, 0xD800, 0x20AC, 0x1F600, 0x2028, 0xFEFF, 0x0301, 0xE4)[point - 0xF8]
        return chr(point)

    def _byte(self) -> int:
        at = self._at
        self._at = at + 1
        return self._data[at] if at < len(self._data) else 0

"""Pages of a list that is in memory, such as the models of the configuration, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from gateway.console.replies import PAGE

T = TypeVar("T")


class NumberedPage(Struct, Generic[T], frozen=True):
    """The rows of a page, and where they are in the list. Pages are counted from 1."""

    rows: Sequence[T]
    number: int
    total: int  # rows of the list

    @property
    def has_more(self) -> bool:
        """Whether a page follows."""
        return self.number * PAGE < self.total

    @property
    def extent(self) -> str:
        """The places of the rows, such as `51–100 of 120`; empty if the page has all of them."""
        first = (self.number - 1) * PAGE
        return f"{first + 1:,}–{first + len(self.rows):,} of {self.total:,}" if len(self.rows) < self.total else ""


def numbered_page(rows: Sequence[T], number: str) -> NumberedPage[T]:
    """The page of this number; the last one for a number that is too high, the first one for no number."""
    last = max(-(-len(rows) // PAGE), 1)
    at = min(int(number), last) if number.isascii() and number.isdigit() and len(number) < 9 else 1
    at = max(at, 1)
    return NumberedPage(rows[(at - 1) * PAGE : at * PAGE], at, len(rows))

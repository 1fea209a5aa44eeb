"""Pages of lists. A service reads one object more than a page has; the page says by it whether another one follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MOST = 1000  # objects on a page
READ_AT_MOST = MOST + 1  # objects that a service returns at once

T = TypeVar("T")


def page_of(found: Sequence[T], size: int) -> tuple[Sequence[T], T | None]:
    """The objects of a page of that size, and the last of them; None instead of it if no page follows."""
    shown = found[:size]
    return shown, shown[-1] if len(found) > size else None

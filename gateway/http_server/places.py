"""A limit of what one person or program has running at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import TooManyRequests


class Places:
    """What runs in this process now, counted by who has it."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._running.total()

    @contextmanager
    def place(self, who: str, *, most: int, refusal: str) -> Iterator[None]:
        """Count one while it runs; TooManyRequests with the text `refusal` if `most` run already."""
        if self._running[who] >= most:
            raise TooManyRequests(refusal)
        self._running[who] += 1
        try:
            yield
        finally:
            self._running[who] -= 1
            self._running += Counter()  # forgets those with none

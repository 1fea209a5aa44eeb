"""Limits of what one person or program, and all together, have running at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from gateway.errors import TooManyRequests


class Limit(Struct, frozen=True, kw_only=True):
    """How many requests one person or token has under way, together at all routes of this limit; more get `refusal`.

    `most_of_site` is the most of all in this process, None for any number; more get `site_refusal`.
    """

    name: str
    most: int
    refusal: str
    most_of_site: int | None = None
    site_refusal: str = ""


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

    @contextmanager
    def take(self, limit: Limit | None, who: str) -> Iterator[None]:
        """Count one of `who` and, if all together have a limit, one of all, while it runs; TooManyRequests.

        Nothing is counted without a limit, or of nobody: `who` is empty then.
        """
        if limit is None or not who:
            yield
            return
        with ExitStack() as places:
            places.enter_context(self.place(f"{who} {limit.name}", most=limit.most, refusal=limit.refusal))
            if limit.most_of_site is not None:
                places.enter_context(self.place(limit.name, most=limit.most_of_site, refusal=limit.site_refusal))
            yield

"""Which models have series of their own in the metrics: at most so many, those that are used.

A counter of a model that has no place is counted under `OTHER`. A place is free again when its model was not used for
`UNUSED` seconds and another one needs it; the series of that model end then. So no series ever becomes smaller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

OTHER = "other"
UNUSED = 6 * 3600.0  # seconds
MOST = 500  # names of models: a scrape of 1.5 MB
#: Values of the label that are no names: no model at all, and whatever is not served.
ALWAYS = frozenset({"", "unknown", OTHER})


class ShownModels:
    """The places of one process."""

    def __init__(self, most: int = MOST, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        self.fits_all = True  # whether all models of the configuration have places
        self._used: dict[str, float] = {}  # when a model with a place was used last; the longest unused is first

    def __contains__(self, name: str) -> bool:
        return name in ALWAYS or name in self._used

    def configure(self, names: Collection[str], most: int) -> list[str]:
        """These models are in the configuration; the models that lose their places for them."""
        self.most, wanted = most, set(names) - ALWAYS
        self.fits_all = len(wanted) <= most
        excess = len(wanted | self._used.keys()) - most if self.fits_all else len(self._used) - most
        left = [name for name in self._used if name not in wanted or not self.fits_all][: max(0, excess)]
        for name in left:
            del self._used[name]
        return left

    def use(self, name: str) -> tuple[str, str]:
        """The label for a model that is used now, and the model whose place it took, or ""."""
        if name in ALWAYS:
            return name, ""
        now, left = self._clock(), ""
        if name not in self._used and len(self._used) >= self.most:
            left = next(iter(self._used), "")
            if not left or now - self._used[left] < UNUSED:
                return OTHER, ""
            del self._used[left]
        self._used.pop(name, None)  # so that it stands last
        self._used[name] = now
        return name, left

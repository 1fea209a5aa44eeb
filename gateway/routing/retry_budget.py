"""Limits the extra attempts of a worker to a fifth of its calls, so that retries never double the load of an outage.

Call `earn()` for every call and `spend()` before every attempt after the first. Sharp edge: a full budget allows a
burst of `BURST` attempts, so that fallback works when there are few calls.
"""

from __future__ import annotations

SHARE = 0.2
BURST = 20.0


class RetryBudget:
    """The budget of one model."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = BURST

    def earn(self) -> None:
        """Add the share of one call."""
        if self._left < BURST:
            self._left = min(BURST, self._left + SHARE)

    def spend(self) -> bool:
        """Whether one more attempt is within the budget; it is then counted."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

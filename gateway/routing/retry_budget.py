"""How many more attempts a worker may spend than it has calls: a fifth, so that retries never double an outage.

`earn()` for every call, `spend()` before every attempt beyond the first. Sharp edge: a full purse allows a burst of
`BURST` attempts, which is what makes fallback work on a quiet gateway.
"""

from __future__ import annotations

SHARE = 0.2
BURST = 20.0


class RetryBudget:
    """One model's purse."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = BURST

    def earn(self) -> None:
        """A call came."""
        if self._left < BURST:
            self._left = min(BURST, self._left + SHARE)

    def spend(self) -> bool:
        """Whether one more attempt is within the budget; it is then counted."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

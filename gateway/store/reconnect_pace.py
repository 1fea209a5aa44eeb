"""How long a link waits before it connects again."""

from __future__ import annotations

import random

QUICK = 0.01  # seconds between the starts of two attempts, after a connection that brought waiting calls forward
MIN_BACKOFF = 0.05  # the same after a connection that lasted for `SETTLED_AFTER`
MAX_BACKOFF = 1.0
SETTLED_AFTER = 1.0


class ReconnectPace:
    """The pauses between attempts to connect: short while they help, else twice as long each time.

    A network that breaks one connection after the other, but delivers some replies over each, then costs a call no more
    than a few short pauses. A server that answers no call is asked less and less often.
    """

    def __init__(self) -> None:
        self._backoff = MIN_BACKOFF
        self._helped = False

    def helped(self) -> None:
        """A command that was sent again has been answered."""
        self._helped = True

    def pause(self, lasted: float) -> float:
        """Seconds until the next attempt, with jitter; the last one began `lasted` seconds ago.

        They count from the beginning of that attempt, so the timeout of an unanswered greeting is part of the pause.
        """
        if self._helped:
            self._backoff = QUICK
        elif lasted > SETTLED_AFTER:
            self._backoff = MIN_BACKOFF
        else:
            self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        self._helped = False
        return max(0.0, self._backoff * random.uniform(0.5, 1.0) - lasted)  # noqa: S311  # jitter

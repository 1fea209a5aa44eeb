"""The output limits that a target accepts, learnt from its refusals: the next call need not be refused again.

Kept for an hour, because the operator of a server may change its limits. A reload of the catalogue forgets them too.
"""

from __future__ import annotations

import time

#: Seconds for which a limit is remembered.
KEPT = 3600.0


class AcceptedLimit:
    """What one target accepts of the limits that the gateway adds; None where it has refused nothing."""

    __slots__ = ("_field", "_tokens", "_until", "_window")

    def __init__(self) -> None:
        self._until = 0.0
        self._tokens: int | None = None
        self._window: int | None = None
        self._field: str | None = None

    def learn(
        self,
        *,
        tokens: int | None = None,
        window: int | None = None,
        field: str | None = None,
        now: float | None = None,
    ) -> None:
        """Remember the longest limit, the context window or the field of the limit that was accepted."""
        now = time.monotonic() if now is None else now
        self._forget(now)
        self._tokens = self._tokens if tokens is None else tokens
        self._window = self._window if window is None else window
        self._field = self._field if field is None else field
        self._until = self._until or now + KEPT

    def limit(self, tokens: int, now: float | None = None) -> int | None:
        """The limit to send instead of `tokens`; None for none: the window is shorter, and ends the answer itself."""
        if not self._until:
            return tokens
        self._forget(time.monotonic() if now is None else now)
        if self._tokens is not None:
            tokens = min(tokens, self._tokens)
        return None if self._window is not None and tokens >= self._window else tokens

    def field(self, usual: str, now: float | None = None) -> str:
        """The field that the target knows, or else the usual one."""
        if not self._until:
            return usual
        self._forget(time.monotonic() if now is None else now)
        return self._field or usual

    def _forget(self, now: float) -> None:
        if self._until and now >= self._until:
            self._until, self._tokens, self._window, self._field = 0.0, None, None, None

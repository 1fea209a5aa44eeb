"""The limit of open client connections: room for a new one is made by closing the one that is idle the longest.

Idle connections are listed only at the limit, so a request costs nothing more. A list of thousands takes milliseconds;
so the lists take at most a twentieth of the time, whatever the number of new connections.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final, Protocol

#: Called about once per tick with how many idle connections were closed and how many new ones were refused.
OnFull = Callable[[int, int], None]
SHARE: Final = 20  # a list that took a millisecond is followed by none for so many
ANSWERED_AT_ONCE: Final = 32  # refused connections that may be open beyond the limit to receive their answer


class Closable(Protocol):
    """The part of a connection that the limit uses."""

    @property
    def idle_since(self) -> float | None:
        """When it became idle, in the server's coarse time; None while it has a request or is closing."""

    def close_if_idle(self, since: float) -> None:
        """Close if it has been idle since `since`."""


class ConnectionLimit:
    """One per server; `most` is 0 without a limit."""

    __slots__ = ("_closed", "_idle", "_list_again", "_on_full", "_refused", "most")

    def __init__(self, most: int, on_full: OnFull | None) -> None:
        self.most = most
        self._on_full = on_full
        self._idle: list[tuple[float, Closable]] = []  # the longest idle last
        self._list_again = 0.0  # when the idle connections may be listed again
        self._closed = self._refused = 0  # since the last tick

    def make_room(self, connections: Iterable[Closable]) -> bool:
        """Close the connection that is idle the longest; False if none is idle, and the new one is to be refused."""
        if not self._idle and (started := time.monotonic()) >= self._list_again:
            idle = [(since, one) for one in connections if (since := one.idle_since) is not None]
            self._idle = sorted(idle, key=itemgetter(0), reverse=True)
            now = time.monotonic()
            self._list_again = now + SHARE * (now - started)
        while self._idle:
            since, connection = self._idle.pop()
            if connection.idle_since == since:
                connection.close_if_idle(since)
                self._closed += 1
                return True
        self._refused += 1
        return False

    def tick(self) -> None:
        """Report what happened since the last call, and forget the list."""
        self._idle.clear()
        if self._closed or self._refused:
            closed, refused = self._closed, self._refused
            self._closed = self._refused = 0
            if self._on_full is not None:
                self._on_full(closed, refused)

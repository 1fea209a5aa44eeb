"""Counts by name within a time that begins with the first one. They are of this process, and bounded in number."""

from __future__ import annotations

import math
from collections import OrderedDict
from time import monotonic

from gateway.errors import TooManyRequests

CHANGES_WITHIN = 600.0
MOST_WHO_CHANGE = 10_000  # people and programs


class WindowCounts:
    """Counts for `seconds`; of more than `remembered` names, those that were counted longest ago are forgotten."""

    def __init__(self, seconds: float, *, remembered: int) -> None:
        self._seconds = seconds
        self._remembered = remembered
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()  # when it began, and the count

    def count(self, name: str) -> tuple[int, float]:
        """What was counted, and in how many seconds it is forgotten."""
        began, count = self._counts.get(name, (0.0, 0))
        left = began + self._seconds - monotonic()
        return (count, left) if count and left > 0 else (0, 0.0)

    def add(self, name: str) -> None:
        """Count one."""
        now = monotonic()
        began, count = self._counts.get(name, (now, 0))
        self._counts[name] = (began, count + 1) if now - began < self._seconds else (now, 1)
        self._counts.move_to_end(name)
        if len(self._counts) > self._remembered:
            self._counts.popitem(last=False)


class ChangeCounts:
    """Counts the changes in a process by who makes them.

    Accounts, keys, events and invitations stay stored. Without a limit, one person or program could fill the store and
    the database.
    """

    def __init__(self) -> None:
        self._counts = WindowCounts(CHANGES_WITHIN, remembered=MOST_WHO_CHANGE)

    def count(self, who: str, *, most: int) -> None:
        """Count a change; TooManyRequests if `most` were made within `CHANGES_WITHIN`."""
        made, left = self._counts.count(who)
        if made >= most:
            minutes = math.ceil(left / 60)
            when = "a minute" if minutes == 1 else f"{minutes} minutes"
            raise TooManyRequests(f"You have made {most} changes in a short time; go on in {when}", retry_after=left)
        self._counts.add(who)

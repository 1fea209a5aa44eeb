"""A limit of the changes of one person on the pages for members, for owners and for everybody who is signed in.

Keys, events and invitations stay stored. Without a limit, one member could fill the store and the database.
"""

from __future__ import annotations

import math

from gateway.console.route import Route
from gateway.console.visit import Visit
from gateway.errors import TooManyRequests
from gateway.http_server.window_counts import WindowCounts

MOST, SECONDS = 120, 600.0  # a change every five seconds
REMEMBERED = 10_000  # people
AUDIENCES = frozenset({"signed_in", "member", "owner"})


class ChangeLimits:
    """Counts the changes of a process by person. Operators have no limit."""

    def __init__(self) -> None:
        self._counts = WindowCounts(SECONDS, remembered=REMEMBERED)

    def count(self, visit: Visit, route: Route) -> None:
        """Count a change, if the route has a limit; TooManyRequests."""
        if route.audience not in AUDIENCES or route.always or visit.user is None or visit.actor.is_operator:
            return
        made, left = self._counts.count(visit.user.id)
        if made >= MOST:
            minutes = math.ceil(left / 60)
            when = "a minute" if minutes == 1 else f"{minutes} minutes"
            raise TooManyRequests(f"You have made {MOST} changes in a short time; go on in {when}", retry_after=left)
        self._counts.add(visit.user.id)

"""How many new accounts begin with `[console] signup_credit`: a bound for the whole site, counted in the store.

Networks do not bound the people whom an identity provider sends: an office has one address, and where everybody gets
an identity for nothing, one person has many. So this bounds what the operator gives away in a day.
"""

from __future__ import annotations

from gateway.ledger.scripts import Links
from gateway.log import gateway_log

WINDOW = 86_400  # seconds after the first credit
NAME = "signup:credits"


class SignUpCredits:
    """Counts the credits of new accounts, at most `most` in `WINDOW`."""

    def __init__(self, links: Links, most: int) -> None:
        self._links = links
        self._most = most

    async def take(self) -> bool:
        """Count one; False beyond the limit. It is counted before it is given, so parallel sign-ups do not pass."""
        call = self._links.link(NAME).call
        counted, expiry = call("INCR", NAME), call("EXPIRE", NAME, WINDOW, "NX")  # one write to the socket
        count, _ = int(await counted), await expiry
        if count == self._most + 1:
            gateway_log.warning(
                "new accounts begin without signup_credit: console.signup_credits_per_day (%d) is reached", self._most
            )
        return count <= self._most

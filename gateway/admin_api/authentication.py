"""Who calls: the bearer token of a request. Addresses that send many unknown tokens have to wait.

Only tokens that are not known to be valid are limited, so callers behind the same address do not lock out each other.
The counts are of this process.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from gateway.admin.actor import Actor
from gateway.admin.services import AdminServices
from gateway.admin.sign_in_limits import network_of
from gateway.errors import NotSignedIn, SignInLimited
from gateway.http_server.window_counts import WindowCounts

WINDOW = 900.0  # seconds after the first unknown token
MOST_UNKNOWN = 50  # unknown tokens from one address in a window; of IPv6 from the first 64 bits
REMEMBERED = 10_000  # addresses, and valid tokens


class Authentication:
    """Finds the actor of a token."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._attempts = AttemptLimits()
        self._valid: OrderedDict[bytes, None] = OrderedDict()  # digests of tokens that were valid

    async def actor(self, authorization: str, address: str) -> Actor:
        """Who calls with this header; NotSignedIn, SignInLimited, DatabaseUnavailable."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise NotSignedIn
        token = token.strip()
        digest = hashlib.sha256(token.encode()).digest()
        if digest not in self._valid:
            self._attempts.check(address)
        tokens = (await self._services.people()).tokens
        try:
            actor = await tokens.authenticate(token, address=address)
        except NotSignedIn:
            self._valid.pop(digest, None)
            self._attempts.count(address)
            raise
        self._valid[digest] = None
        self._valid.move_to_end(digest)
        if len(self._valid) > REMEMBERED:
            self._valid.popitem(last=False)
        return actor


class AttemptLimits:
    """Counts unknown tokens by address."""

    def __init__(self) -> None:
        self._counts = WindowCounts(WINDOW, remembered=REMEMBERED)

    def check(self, address: str) -> None:
        """SignInLimited if the address has used up its attempts."""
        count, left = self._counts.count(network_of(address))
        if count >= MOST_UNKNOWN:
            raise SignInLimited("Too many unknown tokens from this address; try again later", retry_after=left)

    def count(self, address: str) -> None:
        """Count an unknown token."""
        self._counts.add(network_of(address))

"""Who calls: the bearer token of a request. Addresses that send many unknown tokens are told to wait.

Each token is looked up, so that a caller with a token that has ended does not lock out others behind the same address,
also not after a restart. Tokens that this process has not seen as valid take turns, one of an address at a time:
an unknown one costs a read. The counts are of this process.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from gateway.admin.actor import Actor
from gateway.errors import NotSignedIn, SignInLimited
from gateway.http_server.client_address import network_of
from gateway.services.services import AdminServices
from gateway.web.fair_turns import FairTurns
from gateway.web.window_counts import WindowCounts

WINDOW = 900.0  # seconds after the first unknown token
MOST_UNKNOWN = 50  # unknown tokens from one address in a window; of IPv6 from the first 64 bits
REMEMBERED = 10_000  # addresses, and valid tokens
AT_ONCE = 4  # tokens that are not known to be valid and are looked up
SHARE = 1  # of them of one address
MOST_OF_ONE = 256  # that wait
MOST_WAITING = 1024
CROWDED = "Many tokens wait to be looked up; try again in a moment"


class Authentication:
    """Finds the actor of a token."""

    def __init__(self, services: AdminServices) -> None:
        self._services = services
        self._attempts = AttemptLimits()
        self._turns = FairTurns(AT_ONCE, share=SHARE, most_of_one=MOST_OF_ONE, most=MOST_WAITING, refusal=CROWDED)
        self._valid: OrderedDict[bytes, None] = OrderedDict()  # digests of tokens that were valid

    async def actor(self, authorization: str, address: str) -> Actor:
        """Who calls with this header; NotSignedIn, SignInLimited, TooManyRequests, DatabaseUnavailable."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise NotSignedIn
        token = token.strip()
        digest = hashlib.sha256(token.encode()).digest()
        if digest in self._valid:
            return await self._look_up(token, digest, address)
        async with self._turns.turn(address):
            return await self._look_up(token, digest, address)

    async def _look_up(self, token: str, digest: bytes, address: str) -> Actor:
        tokens = (await self._services.people()).tokens
        try:
            actor = await tokens.authenticate(token, address=address)
        except NotSignedIn:
            self._valid.pop(digest, None)
            self._attempts.check(address)
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

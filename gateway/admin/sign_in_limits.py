"""Attempts to sign in are limited in the store, by e-mail or user and by address: all processes count together.

An attempt is counted before its password is checked, so parallel attempts do not pass. A success is not counted.
Each kind of attempt has a counter of its own for the address, so that sign-ups and the outage of an identity provider
keep nobody from signing in with a password. Names in the store are HMACs: it has no e-mail addresses of people.
"""

from __future__ import annotations

import hmac
import time
from ipaddress import IPv6Address, ip_address
from typing import Literal

from gateway.accounts.pepper import derive
from gateway.errors import SignInLimited
from gateway.ledger.scripts import Links

WINDOW = 900  # seconds after the first attempt
PER_SUBJECT = 10
PER_ADDRESS = 50  # an office has one address
PROVIDER_PER_ADDRESS = 300  # nothing is guessed there: it bounds what the store remembers

#: What is counted for an address: `address` passwords and codes, `mail` requests for a new password, `sign-up` requests
#: for a link to sign up, `provider` sign-ins that go to an identity provider, `newcomer` people who sign up by e-mail.
Counter = Literal["address", "mail", "provider", "newcomer", "sign-up"]


class SignInLimits:
    """Counts attempts."""

    def __init__(self, links: Links, pepper: bytes) -> None:
        self._links = links
        self._key = derive(pepper, "sign-in-limits")

    async def attempt(
        self, subject: str, address: str, counter: Counter = "address", *, most: int | None = None
    ) -> None:
        """Count one for an e-mail or user id, if there is one, and for an address; SignInLimited beyond the limit.

        `most` is another limit for the address.
        """
        if subject:
            await self._count(self._name("subject", subject), PER_SUBJECT)
        if address:
            usual = PROVIDER_PER_ADDRESS if counter == "provider" else PER_ADDRESS
            await self._count(self._name(counter, network_of(address)), usual if most is None else most)

    async def succeeded(self, subject: str, address: str, counter: Counter = "address") -> None:
        """Take back what `attempt` counted, and all for the subject."""
        if subject:
            name = self._name("subject", subject)
            await self._links.link(name).call("DEL", name)
        if address:
            await self._add(self._name(counter, network_of(address)), -1)

    async def _count(self, name: str, most: int) -> None:
        if await self._add(name, 1) > most:
            expires = await self._links.link(name).call("PEXPIRETIME", name)
            raise SignInLimited(retry_after=expires / 1000 - time.time())

    async def _add(self, name: str, number: int) -> int:
        call = self._links.link(name).call
        counted, expiry = call("INCRBY", name, number), call("EXPIRE", name, WINDOW, "NX")  # one write to the socket
        count, _ = await counted, await expiry
        return int(count)

    def _name(self, kind: str, text: str) -> str:
        return f"signin:{kind}:{hmac.digest(self._key, text.encode(), 'sha256')[:16].hex()}"


def network_of(address: str) -> str:
    """The address; of IPv6 the first 64 bits, which one customer has."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or parsed.exploded[:19])
    return str(parsed)

"""Attempts to sign in are limited in the store, by e-mail or user and by address: all processes count together.

An attempt is counted before its password is checked, so parallel attempts do not pass. A success is not counted.
Names in the store are HMACs: it has no e-mail addresses of people.
"""

from __future__ import annotations

import hmac
import time
from ipaddress import IPv6Address, ip_address

from gateway.accounts.pepper import derive
from gateway.errors import SignInLimited
from gateway.ledger.scripts import Links

WINDOW = 900  # seconds after the first attempt
PER_SUBJECT = 10
PER_ADDRESS = 50  # an office has one address


class SignInLimits:
    """Counts attempts."""

    def __init__(self, links: Links, pepper: bytes) -> None:
        self._links = links
        self._key = derive(pepper, "sign-in-limits")

    async def attempt(self, subject: str, address: str) -> None:
        """Count one for an e-mail or user id, if there is one, and for an address; SignInLimited beyond the limit."""
        for name, most in self._names(subject, address):
            call = self._links.link(name).call
            counted, expiry = call("INCRBY", name, 1), call("EXPIRE", name, WINDOW, "NX")  # one write to the socket
            count, _ = await counted, await expiry
            if count > most:
                raise SignInLimited(retry_after=await call("PEXPIRETIME", name) / 1000 - time.time())

    async def succeeded(self, subject: str, address: str) -> None:
        """Take back what `attempt` counted, and all for the subject."""
        for name, most in self._names(subject, address):
            call = self._links.link(name).call
            if most == PER_SUBJECT:
                await call("DEL", name)
            else:
                counted, expiry = call("DECRBY", name, 1), call("EXPIRE", name, WINDOW, "NX")
                await counted, await expiry

    def _names(self, subject: str, address: str) -> list[tuple[str, int]]:
        names = [(self._name("subject", subject), PER_SUBJECT)] if subject else []
        if address:
            names.append((self._name("address", network_of(address)), PER_ADDRESS))
        return names

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

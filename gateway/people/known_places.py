"""Browsers and addresses from which a person has signed in before.

Their attempts to sign in are counted apart, so that wrong passwords from elsewhere do not keep the person out there. A
browser has a signed cookie for it; of the last address the store remembers an HMAC. The cookie gives no other right.
"""

from __future__ import annotations

import hmac
import secrets
import time

from msgspec import Struct

from gateway.store.links import Links
from gateway.whole_numbers import parse_whole_number

KEPT = 90 * 86_400  # seconds since the sign-in


class Place(Struct, frozen=True):
    """Where an attempt of a person comes from, and what it counts for."""

    email: str
    subject: str  # the browser, the last network with the e-mail, or the e-mail everywhere else
    is_browser: bool = False  # a known one: strangers do not have its cookie
    is_network: bool = False  # the last one: what is wrong there counts for the e-mail everywhere, too

    @property
    def everywhere(self) -> str:
        """The subject of attempts from places that are not known."""
        return f"email {self.email}"


class KnownPlaces:
    """Remembers where people sign in. `key` signs the cookies and hides names in the store."""

    def __init__(self, links: Links, key: bytes) -> None:
        self._links = links
        self._key = key

    async def remember(self, email: str, network: str) -> str:
        """After a sign-in: remember the network, and return the value of the browser's cookie."""
        name = self._name(email)
        if network:
            await self._links.link(name).call("SET", name, self._digest("network", email, network), "EX", KEPT)
        expires, id_ = str(int(time.time()) + KEPT), secrets.token_hex(8)
        return f"{expires}.{id_}.{self._digest('browser', email, expires, id_)}"

    async def place(self, email: str, network: str, cookie: str, since: int) -> Place:
        """Where an attempt of this person comes from.

        What became known before `since`, in seconds since 1970, does not count.
        """
        if id_ := self._browser(email, cookie, since):
            return Place(email, f"browser {id_}", is_browser=True)
        name = self._name(email)
        stored = await self._links.link(name).call("GET", name) if network else None
        if stored is not None and _equal(_text(stored), self._digest("network", email, network)):
            expires = await self._links.link(name).call("EXPIRETIME", name)
            if expires - KEPT >= since:
                return Place(email, f"network {network} {email}", is_network=True)
        return Place(email, f"email {email}")

    def _browser(self, email: str, cookie: str, since: int) -> str:
        """The id in a cookie that was made for this person and is valid; empty for any other."""
        expires, _, rest = cookie.partition(".")
        id_, _, signature = rest.partition(".")
        is_right = _equal(signature, self._digest("browser", email, expires, id_))
        if not is_right or (until := parse_whole_number(expires)) <= time.time():
            return ""
        return id_ if until - KEPT >= since else ""

    def _name(self, email: str) -> str:
        return f"signin:last:{self._digest('person', email)}"

    def _digest(self, *parts: str) -> str:
        return hmac.digest(self._key, "\0".join(parts).encode(errors="surrogatepass"), "sha256")[:16].hex()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="surrogatepass"), other.encode())


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

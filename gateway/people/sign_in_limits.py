"""Attempts to sign in are limited in the store, by e-mail or user and by address: all processes count together.

An attempt is counted before its password is checked, so parallel attempts do not pass. A success is not counted.
Each kind of attempt has a counter of its own for the address, so that sign-ups and the outage of an identity provider
keep nobody from signing in with a password. The address is counted first: what it is refused counts for nobody else.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

from gateway.accounts.pepper import derive
from gateway.errors import SignInLimited
from gateway.http_server.client_address import network_of
from gateway.people.known_places import KnownPlaces, Place
from gateway.people.stored_counts import StoredCounts
from gateway.store.links import Links
from gateway.web.window_counts import WindowCounts

WINDOW = 900  # seconds after the first attempt
PER_SUBJECT = 10
PER_ADDRESS = 50  # an office has one address
PER_PERSON = 50  # attempts with a password of the known browsers of a person together
NO_LIMIT = 10**9  # of a counter that refuses elsewhere
PASSWORD_CHANGES = 10  # of one person, with those that a wrong current password refused
PASSWORD_CHECKS = 60  # of one person who is signed in, right or wrong
SPENT = "You have given your password too often in a short time; try again later"
PROVIDER_PER_ADDRESS = 300  # nothing is guessed there: it bounds what the store remembers

#: What is counted for an address: `address` passwords and codes, `link` new passwords by a link, `mail` requests for a
#: new password, `sign-up` requests for a link to sign up, `provider` sign-ins that go to an identity provider,
#: `newcomer` people who sign up by e-mail.
Counter = Literal["address", "link", "mail", "provider", "newcomer", "sign-up"]
MOST_RECORDED: Final = 5  # events of a kind
RECORDED_WITHIN: Final = 900.0  # seconds, as of the attempts
REMEMBERED: Final = 10_000  # networks and people, with kinds


class SignInLimits:
    """Counts attempts."""

    def __init__(self, links: Links, pepper: bytes) -> None:
        self.counts = StoredCounts(links, derive(pepper, "sign-in-limits"))
        self._known = KnownPlaces(links, derive(pepper, "known-places"))

    async def place(self, email: str, address: str, known_browser: str, since: int) -> Place:
        """Where an attempt of this person comes from: a known browser or address of the person counts apart.

        `since`, in microseconds: what became known before may be another person's.
        """
        network, seconds = network_of(address) if address else "", since // 10**6
        return await self._known.place(email, network, known_browser, seconds)

    async def remember(self, email: str, address: str) -> str:
        """After a sign-in: the value of the cookie that makes the browser known to `place`, as the address is."""
        return await self._known.remember(email, network_of(address) if address else "")

    async def attempt(
        self, subject: str, address: str, counter: Counter = "address", *, most: int | None = None
    ) -> None:
        """Count one for an address, and then one for an e-mail or user id, if there is one; SignInLimited.

        `most` is another limit for the address. What people do who are signed in, or have given the right password,
        has no address: strangers there would keep them from it.
        """
        counters = [(self.counts.name("subject", subject), PER_SUBJECT)] if subject else []
        if address:
            usual = PROVIDER_PER_ADDRESS if counter == "provider" else PER_ADDRESS
            counters.insert(0, (self._of_address(counter, address), usual if most is None else most))
        await self._count(*counters)

    async def attempt_password(self, place: Place, address: str) -> None:
        """Count a password that is given to sign in; SignInLimited.

        A known browser counts for its person, and not for the address. The last network has a limit of its own, and
        counts for the e-mail elsewhere, too: else strangers there learn who is a user.
        """
        await self._count(self._wider(place, address), (self.counts.name("subject", place.subject), PER_SUBJECT))
        if place.is_network:
            await self.counts.add(self.counts.name("subject", place.everywhere), NO_LIMIT, WINDOW)

    async def attempt_request(self, what: str, place: Place, address: str, counter: Counter) -> None:
        """Count a request for an e-mail to a person; SignInLimited.

        What strangers ask for from one network keeps nobody from it who is elsewhere, or in a known browser.
        """
        if place.is_browser:
            await self.attempt(f"{what} {place.subject}", "")
        else:
            network = network_of(address) if address else ""
            await self.attempt(f"{what} {place.email} {network}", address, counter)

    async def attempt_link(self, token: str, address: str) -> None:
        """Count a new password that is set by a valid link; SignInLimited."""
        await self.attempt(_link(token), address, "link")

    async def link_worked(self, token: str, address: str) -> None:
        """Take back what `attempt_link` counted."""
        await self.succeeded(_link(token), address, "link")

    async def spend(self, subject: str, most: int) -> None:
        """Count one for a user id; it is not taken back. SignInLimited beyond `most`."""
        await self._count((self.counts.name("spent", subject), most), message=SPENT)

    async def succeeded(self, subject: str, address: str, counter: Counter = "address") -> None:
        """Take back what `attempt` counted, and all for the subject."""
        if subject:
            await self.counts.forget(self.counts.name("subject", subject))
        if address:
            await self.counts.take_back(self._of_address(counter, address))

    async def password_was_right(self, place: Place, address: str) -> None:
        """Take back what `attempt_password` counted; but for a person who has still to give a code, see `signed_in`."""
        await self.counts.take_back(self._wider(place, address)[0])

    async def signed_in(self, place: Place) -> None:
        """Forget the attempts of the place of a person who has signed in."""
        await self.counts.forget(self.counts.name("subject", place.subject))
        if place.is_network:
            await self.counts.take_back(self.counts.name("subject", place.everywhere))

    def _wider(self, place: Place, address: str) -> tuple[str, int]:
        if place.is_browser or not address:
            return self.counts.name("person", place.email), PER_PERSON
        return self._of_address("address", address), PER_ADDRESS

    def _of_address(self, counter: Counter, address: str) -> str:
        return self.counts.name(counter, network_of(address))

    async def _count(self, *counters: tuple[str, int], message: str | None = None) -> None:
        """Count in each of them, or in none."""
        if ends := await self.counts.add_all(counters, WINDOW):
            raise SignInLimited(message, retry_after=ends)


def _link(token: str) -> str:
    return f"link {hashlib.sha256(token.encode(errors='surrogatepass')).hexdigest()}"


class RecordedAttempts:
    """Which attempts of strangers get an event: refused sign-ins at a provider, and requests for a new password.

    Anybody can make as many as the limits of attempts permit, and events stay for good. So a network, and a person who
    is named, have a few of each kind in some minutes. They are counted by process.
    """

    def __init__(self) -> None:
        self._counts = WindowCounts(RECORDED_WITHIN, remembered=REMEMBERED)

    def admits(self, *names: str) -> bool:
        """Whether an attempt gets an event, each name of which says who and of which kind; if so, it is counted."""
        if any(self._counts.count(name)[0] >= MOST_RECORDED for name in names):
            return False
        for name in names:
            self._counts.add(name)
        return True

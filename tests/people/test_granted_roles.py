"""Whatever happens in which order, a role that claims give is that of the person who comes by the provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest
from msgspec import structs

from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin.granted import Granted
from gateway.database.people_tables import users
from gateway.errors import Forbidden, GatewayError, NotSignedIn, SignInFailed
from gateway.people.identities import user_of_identity
from gateway.people.oidc.entering import connect_signed_in, enter, enter_by_email
from gateway.people.oidc.person import Person
from gateway.people.sessions import NewSession
from gateway.people.sign_in import Client
from tests.admin.services import ROOT, Services

CORP, RIVAL = "https://corp.test", "https://rival.test"
OF_THIEF = "a password of somebody else"
OF_PERSON = "a password of the person"
ROLES = {"operator": Granted(site_role="operator"), "owner": Granted(accounts={"acme": "owner"})}
KINDS = ("operator", "last operator", "owner")


class Story:
    """A person whom a provider knows, and somebody who has their mailbox and sees their links."""

    def __init__(self, s: Services, number: int, role: str, *, verified: bool) -> None:
        self.s = s
        self.email = f"pia{number}@example.com"
        self.client = Client(f"10.0.{number // 256}.{number % 256}", "a browser")  # attempts are limited by address
        self.role = role.removeprefix("last ")
        self.is_last = role != self.role
        self.verified = verified  # the provider knows the person by this address
        self.others: list[NewSession] = []  # that began in another way than by the provider of the person
        self.passwords = [OF_THIEF]
        self.given = Granted()

    async def begin(self) -> None:
        """The user and the connection with the provider."""
        s, people = self.s, self.s.people
        user = await s.user(self.email, password="" if self.verified else OF_PERSON)
        if self.verified:
            await people.transactions.write(enter_by_email, self.person, self.client)
            return
        self.passwords.append(OF_PERSON)
        session = await people.sign_in.with_password(self.email, OF_PERSON, self.client)
        assert isinstance(session, NewSession)
        self.others.append(session)
        signed_in = await people.sessions.authenticate(session.token)
        await people.transactions.write_as(signed_in.actor, connect_signed_in, self.person)
        assert signed_in.user.id == user.id

    @property
    def person(self) -> Person:
        """Who comes by the provider."""
        email = self.email if self.verified else f"at-corp-{self.email}"
        return Person("corp", CORP, f"person {self.email}", email=email, name="", granted=self.given)

    @property
    def thief(self) -> Person:
        """Somebody else, at another provider."""
        return Person("rival", RIVAL, f"thief {self.email}", email="m@evil.test", name="", granted=Granted())

    async def mail(self) -> None:
        """The owner of the mailbox sets a new password."""
        link = await self.s.people.sign_in_links.create_for_reset(self.email)
        assert link is not None
        self._began(await self.s.people.sign_in.reset_password(link.token, OF_THIEF, self.client))

    async def link(self) -> None:
        """Somebody who sees the link of an operator sets a new password."""
        link = await self._link()
        self._began(await self.s.people.sign_in.reset_password(link, OF_THIEF, self.client))

    async def sign_in(self) -> None:
        """Somebody who sees the link of an operator signs in without a password."""
        self._began(await self.s.people.sign_in.with_link(await self._link(), self.client))

    async def connect(self) -> None:
        """Somebody who has a session connects another provider, and comes by it."""
        people = self.s.people
        for actor in await self._others():
            with suppress(GatewayError):
                await people.transactions.write_as(actor, connect_signed_in, self.thief)
        if await people.transactions.read(user_of_identity, RIVAL, self.thief.subject) is not None:
            self._began((await people.transactions.write(enter, self.thief, self.client)).begun)

    async def rise(self) -> None:
        """The person comes by the provider, whose claims give the role. Only this session has it."""
        self.given = ROLES[self.role]
        for session in await self._come():
            assert self._has_role(await self._actor(session))

    async def fall(self) -> None:
        """The person comes by the provider, whose claims give nothing. The last operator stays one."""
        self.given = Granted()
        for session in await self._come():
            assert self._has_role(await self._actor(session)) <= self.is_last

    async def enter_by_passwords(self) -> None:
        """Somebody tries all passwords that were set."""
        for password in self.passwords:
            with suppress(SignInFailed):
                self._began(await self.s.people.sign_in.with_password(self.email, password, self.client))

    async def check(self) -> None:
        """No session of another way in has the role, and none makes changes with it."""
        for actor in await self._others():
            assert not self._has_role(actor)
            await self.s.people.transactions.require_current(actor)
            rights: dict[str, Any] = {"memberships": {"acme": "owner"}}
            if self.role == "operator":
                rights = {"scopes": EVERYTHING}
            with pytest.raises(Forbidden):
                await self.s.people.transactions.require_current(structs.replace(actor, **rights))

    async def _come(self) -> list[NewSession]:
        known = await self.s.people.transactions.read(user_of_identity, CORP, self.person.subject)
        if known is None:  # the new password has ended the connection
            return []
        entry = await self.s.people.transactions.write(enter, self.person, self.client)
        assert isinstance(entry.begun, NewSession)
        assert not entry.left or not self._has_role(await self._actor(entry.begun))  # before the membership has ended
        for account in entry.left:
            await self.s.people.memberships.remove(ROOT, entry.user_id, account)
        return [entry.begun]

    async def _link(self) -> str:
        user = await self.s.people.users.find(ROOT, self.email)
        return (await self.s.people.sign_in_links.create(ROOT, user.id)).token

    def _began(self, begun: Any) -> None:
        assert isinstance(begun, NewSession)
        self.others.append(begun)

    async def _actor(self, session: NewSession) -> Actor:
        return (await self.s.people.sessions.authenticate(session.token)).actor

    async def _others(self) -> list[Actor]:
        found = list[Actor]()
        for session in self.others:
            with suppress(NotSignedIn):
                found.append(await self._actor(session))
        return found

    def _has_role(self, actor: Actor) -> bool:
        return actor.is_operator if self.role == "operator" else actor.owns("acme")


STEPS: list[Callable[[Story], Awaitable[None]]] = [
    Story.mail,
    Story.link,
    Story.sign_in,
    Story.connect,
    Story.rise,
    Story.fall,
]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("length", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("role", KINDS)
@pytest.mark.parametrize("verified", [True, False], ids=["verified", "connected on the profile"])
async def test_role_that_claims_give_is_nobodys_but_of_who_comes_by_the_provider_in_each_order(
    services: Any, role: str, verified: bool, length: int
) -> None:
    async with services() as s:
        if role == "operator":
            await s.user("root@example.com", role="operator")
        orders = list(permutations(STEPS, length))
        if length > 2:  # each order with one role, of a verified person or of a connected one
            orders = orders[2 * KINDS.index(role) + verified :: 2 * len(KINDS)]
        if s.database.engine.dialect.name == "postgresql":  # it is slower, and does the same
            orders = orders[::5]
        for number, order in enumerate(orders):
            story = Story(s, number, role, verified=verified)
            await story.begin()
            for step in (*order, Story.rise, Story.enter_by_passwords):
                await step(story)
                await story.check()
            if role == "last operator":  # that of the next story is the last one, too
                await s.people.transactions.write(_end, (await s.people.users.find(ROOT, story.email)).id)


def _end(connection: Any, user_id: str) -> None:
    connection.execute(users.update().where(users.c.id == user_id).values(role="none"))

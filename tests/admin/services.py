"""The services of one test, with functions for what most tests need."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gateway.admin.actor import Actor, Scope, command_line
from gateway.admin.audit_event import AuditEvent
from gateway.admin.audit_trail import AuditFilter
from gateway.admin.outbox import AuditOutbox
from gateway.admin.user_rows import User
from gateway.database.engine import Database
from gateway.database.tables import metadata
from gateway.people.people import People
from gateway.people.proofs import set_proved
from gateway.people.sessions import NewSession
from gateway.people.sign_in import Client
from tests.world import World

ROOT = command_line("root")
HOME = Client("192.0.2.1", "a browser")
PASSWORD = "correct horse battery"


def token(*scopes: Scope, account: str = "") -> Actor:
    """A program that acts."""
    return Actor(kind="token", id="tok_test", scopes=frozenset(scopes), account=account)


class Services:
    """The services, the store, the database and the outgoing mail."""

    def __init__(self, people: People, world: World, database: Database, mail: Any) -> None:
        self.people = people
        self.world = world
        self.database = database
        self.mail = mail

    async def user(
        self, email: str = "ann@example.com", *, password: str = "", is_proved: bool = True, **rest: Any
    ) -> User:
        """A new user, who has set this password; their address is proved unless the test says otherwise."""
        user = await self.people.users.create(ROOT, email, **rest)
        if is_proved:
            await self.people.transactions.write(set_proved, user.id, "mail")
        if password:
            link = await self.people.sign_in_links.create(ROOT, user.id)
            await self.people.sign_in.reset_password(link.token, password, HOME)
        return await self.people.users.show(ROOT, user.id)

    async def owner(self, email: str = "owner@example.com", account: str = "acme") -> Actor:
        """A user who owns an account, as one who acts."""
        user = await self.user(email)
        return (await self.people.memberships.set(ROOT, user.id, account, "owner")).actor("")

    async def signed_in(self, email: str = "ann@example.com", password: str = PASSWORD) -> NewSession:
        """A new session."""
        session = await self.people.sign_in.with_password(email, password, HOME)
        assert isinstance(session, NewSession)
        return session

    async def waiting_events(self) -> list[AuditEvent]:
        """The events that wait in the store, oldest first."""
        return [event for _, event in await AuditOutbox(self.world.store).read() if event is not None]

    async def events(self, **wanted: Any) -> list[AuditEvent]:
        """The newest events, newest first."""
        return await self.people.audit_trail.list(ROOT, AuditFilter(**wanted), limit=1000)

    async def actions(self, **wanted: Any) -> list[str]:
        """The actions of events, oldest first."""
        return [event.action for event in reversed(await self.events(**wanted))]

    def text(self) -> str:
        """All that the database has, as one text for a search."""
        with self.database.reading() as connection:
            rows = [tuple(row) for table in metadata.sorted_tables for row in connection.execute(sa.select(table))]
        return repr(rows)

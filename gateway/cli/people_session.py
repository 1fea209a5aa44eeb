"""A command's way to the services over people: the database and the store, opened for the command.

SQLAlchemy is imported here when a command runs, never when its file is imported: it takes 0.2 s.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.admin.actor import Actor
from gateway.cli.server_option import current_server
from gateway.cli.session import Session, run
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.accounts.keys import NewKey
    from gateway.admin.audit_event import AuditEvent
    from gateway.admin.people import People

T = TypeVar("T")


class PeopleSession:
    """What commands about people work with."""

    def __init__(self, session: Session, people: People) -> None:
        self.store = session
        self.people = people

    @property
    def actor(self) -> Actor:
        """Who runs the command."""
        return self.store.actor

    async def user_id(self, email: str) -> str:
        """The id of the user with this e-mail; NotFound if there is none."""
        return (await self.people.users.find(self.actor, email)).id

    async def events(
        self, *, since: datetime | None, actor: str, object_: str, account: str, limit: int
    ) -> list[AuditEvent]:
        """The newest events of the audit trail, also those that the importer has not moved yet."""
        from gateway.admin.audit_trail import AuditFilter
        from gateway.admin.newest_events import newest_events

        wanted = AuditFilter(since=since, actor=actor, object=object_, account=account)
        return await newest_events(self.actor, self.people.audit_trail, self.store.outbox, wanted, limit=limit)

    async def create_key(self, email: str, account: str, **options: Any) -> NewKey:
        """`MemberKeys.create` for the user with this e-mail, with a note about what may not outlive a crash."""
        await self.store.check_pepper()
        key = await self.people.member_keys.create(self.actor, account, await self.user_id(email), **options)
        await self.store.note_doubts()
        return key


def run_people(settings: Settings, work: Callable[[PeopleSession], Awaitable[T]]) -> T:
    """Open the store and the database, do `work`, close them.

    DatabaseRefused if the store's history is in another database: people belong into that one.
    """
    if (server := current_server()) is not None:
        from gateway.cli.remote_people import run_remote_people

        return run_remote_people(server, work)

    from gateway.admin.people import People
    from gateway.admin.people_database import open_people_database
    from gateway.history.sql_thread import SqlThread

    async def with_database(session: Session) -> T:
        sql = SqlThread()
        try:
            database = await open_people_database(settings, session.store, sql)
            try:
                people = People(settings, database, sql, session.store)
                try:
                    return await work(PeopleSession(session, people))
                finally:
                    people.close()
            finally:
                database.close()
        finally:
            sql.close()

    return run(settings, with_database)

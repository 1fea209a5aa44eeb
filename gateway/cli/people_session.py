"""A command's way to the services over people: the database and the store, opened for the command.

SQLAlchemy is imported here when a command runs, never when its file is imported: it takes 0.2 s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from gateway.admin.actor import Actor
from gateway.cli.session import run

if TYPE_CHECKING:
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.people.people import People

T = TypeVar("T")


class PeopleSession:
    """What commands about people work with."""

    def __init__(self, session: StoreSession, people: People) -> None:
        self.store = session
        self.people = people

    @property
    def actor(self) -> Actor:
        """Who runs the command."""
        return self.store.actor


@asynccontextmanager
async def opened_people(settings: Settings, session: StoreSession) -> AsyncIterator[People]:
    """The services over people, with their database, closed at the end.

    DatabaseRefused if the store's history is in another database: people belong into that one.
    """
    from gateway.history.sql_thread import SqlThread
    from gateway.people.people import People
    from gateway.people.people_database import open_people_database

    sql = SqlThread()
    try:
        database = await open_people_database(settings, session.store, sql)
        try:
            people = People(settings, database, sql, session.store)
            try:
                yield people
            finally:
                people.close()
        finally:
            database.close()
    finally:
        sql.close()


def run_people(settings: Settings, work: Callable[[PeopleSession], Awaitable[T]]) -> T:
    """Open the store and the database, do `work`, close them."""

    async def with_people(session: StoreSession) -> T:
        async with opened_people(settings, session) as people:
            return await work(PeopleSession(session, people))

    return run(settings, with_people)

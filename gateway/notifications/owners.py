"""Who owns an account, from the database: ids in the queue, an address only at the moment of sending."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from gateway.database.engine import Database
from gateway.database.people_tables import memberships, users
from gateway.history.sql_thread import SqlThread

MOST = 100  # owners of one account who get an e-mail


class AccountOwners:
    """Looks owners up. Events are rare: the database is opened for each look."""

    def __init__(self, open_database: Callable[[], Database], sql: SqlThread) -> None:
        self._open = open_database
        self._sql = sql

    async def of(self, account: str) -> list[str]:
        """The ids of the owners who are not disabled. DatabaseUnavailable or DatabaseRefused."""
        return await self._sql.run(self._owners, account)

    async def email(self, user_id: str) -> str:
        """The address of a user; empty if the user is disabled or erased."""
        return await self._sql.run(self._email, user_id)

    def _owners(self, account: str) -> list[str]:
        query = (
            sa.select(users.c.id)
            .join(memberships, memberships.c.user_id == users.c.id)
            .where(memberships.c.account == account, memberships.c.role == "owner", users.c.disabled_at.is_(None))
            .order_by(users.c.id)
            .limit(MOST)
        )
        with self._opened() as database, database.reading() as connection:
            return list(connection.scalars(query))

    def _email(self, user_id: str) -> str:
        query = sa.select(users.c.email).where(users.c.id == user_id, users.c.disabled_at.is_(None))
        with self._opened() as database, database.reading() as connection:
            return str(connection.scalar(query) or "")

    @contextmanager
    def _opened(self) -> Iterator[Database]:
        database = self._open()
        try:
            yield database
        finally:
            database.close()

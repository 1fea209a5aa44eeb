"""Transactions of an event loop: each runs a function of a connection in the thread of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.current_rights import require_current
from gateway.database.engine import Database
from gateway.database.migrate import require_newest
from gateway.history.sql_thread import SqlThread

P = ParamSpec("P")
T = TypeVar("T")


class Transactions:
    """Reads and writes of one database. An error in the function undoes all that it wrote."""

    def __init__(self, database: Database, sql: SqlThread) -> None:
        self._database = database
        self._sql = sql

    async def read(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(connection, …)` in a transaction that reads."""

        def call() -> T:
            with self._database.reading() as connection:
                return function(connection, *args, **kwargs)

        return await self._sql.run(call)

    async def write(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(connection, …)` in a transaction that writes, and outlives a power failure when this returns.

        DatabaseRefused once a newer program has upgraded the tables. A cancelled caller does not stop it. It is called
        again if the server undid the transaction, because two of them waited for each other: so it changes nothing
        outside of the database.
        """

        def change(connection: Connection) -> T:
            require_newest(connection)
            return function(connection, *args, **kwargs)

        return await self._sql.run(self._database.write, change)

    async def rehearse(self, change: Callable[[Connection], object]) -> None:
        """Call a change in a transaction that is undone: the errors of the change, and nothing else."""
        await self._sql.run(self._database.rehearse, change)

    async def write_as(
        self, actor: Actor, function: Callable[Concatenate[Connection, Actor, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`write` of `function(connection, actor, …)` for an actor who has lost no rights since the request began.

        Forbidden, NotSignedIn. Every change that an actor asks for is made by this method.
        """
        return await self.write(as_current(actor, function, *args, **kwargs))

    async def require_current(self, actor: Actor) -> None:
        """Forbidden, NotSignedIn for an actor who has lost rights: for long work on the store, now and then."""
        await self.write_as(actor, _change_nothing)


def as_current(
    actor: Actor, function: Callable[Concatenate[Connection, Actor, P], T], *args: P.args, **kwargs: P.kwargs
) -> Callable[[Connection], T]:
    """`function(connection, actor, …)` as a change that is refused once the actor has lost rights."""

    def call(connection: Connection) -> T:
        require_current(connection, actor)
        return function(connection, actor, *args, **kwargs)

    return call


def _change_nothing(connection: Connection, actor: Actor) -> None:
    """The rights are read before."""

"""Transactions of an event loop: each runs a function of a connection in the thread of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.engine import Connection

from gateway.database.engine import Database
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

        A cancelled caller does not stop it. It is called once more if the server undid the transaction, because two of
        them waited for each other: so it changes nothing outside of the database.
        """
        return await self._sql.run(self._database.write, lambda connection: function(connection, *args, **kwargs))

"""A command's way to reports: the database alone, opened for the command. The store is not needed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from gateway.admin.actor import Actor, command_line
from gateway.cli.history_database import existing_database
from gateway.cli.session import login_name
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.admin.transactions import Transactions

T = TypeVar("T")


class HistorySession:
    """What commands that read reports work with."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions
        self.actor: Actor = command_line(login_name())


def run_history(settings: Settings, work: Callable[[HistorySession], Awaitable[T]]) -> T:
    """Open the database, do `work`, close it; Failure if there is none."""
    with existing_database(settings) as database:
        from gateway.admin.transactions import Transactions
        from gateway.history.sql_thread import SqlThread

        async def session() -> T:
            with closing(SqlThread()) as sql:
                return await work(HistorySession(Transactions(database, sql)))

        return asyncio.run(session())

"""What the tests of the services share: a store, a database of each kind, and the services over both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from argon2 import PasswordHasher

from gateway.accounts.pepper import load_pepper
from gateway.admin.mail import Delivery
from gateway.config.loader import parse
from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.people.password_hashes import PasswordHashes
from gateway.people.people import People
from tests.admin.services import Services
from tests.databases import database, database_address
from tests.world import OpenWorld

__all__ = ["database", "database_address"]

OpenServices = Callable[..., AbstractAsyncContextManager[Services]]


class Outgoing:
    """A mail server that takes everything, or refuses everything."""

    def __init__(self) -> None:
        self.is_set_up = True
        self.sent: list[tuple[str, str, str]] = []
        self.problem = ""

    async def send(self, to: str, subject: str, text: str, *, sender: str = "") -> Delivery:
        if self.problem:
            return Delivery(False, self.problem)
        self.sent.append((to, subject, text))
        return Delivery(True)


@pytest.fixture
def sql() -> Iterator[SqlThread]:
    """The thread of the database calls."""
    thread = SqlThread()
    yield thread
    thread.close()


@pytest.fixture
def hashes() -> Iterator[PasswordHashes]:
    """Hashes that cost little."""
    hashes = PasswordHashes(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    yield hashes
    hashes.close()


@pytest.fixture
def services(
    world: OpenWorld, database: Database, sql: SqlThread, hashes: PasswordHashes, tmp_path: Any
) -> OpenServices:
    """Opens the services over an empty store and database, with the accounts acme and other."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Services]:
        settings = parse({"store": {"data_dir": str(tmp_path / "var")}, "console": {"public_url": "https://gw.test"}})
        load_pepper(settings.data_dir)  # as `gateway serve` did at its first start
        async with world() as w:
            for name in ("acme", "other"):
                await w.accounts.create(name)
            mail = Outgoing()
            people = People(settings, database, sql, w.store, mail=mail, hashes=hashes)
            yield Services(people, w, database, mail)

    return opened

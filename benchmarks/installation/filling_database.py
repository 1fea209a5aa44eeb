"""Fills the database: users and memberships by bulk SQL, the history by the importer.

Each account has one owner, who is a member of LARGE, too. The user WIDE owns many accounts, and LARGE.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from benchmarks.installation.size import LARGE, WIDE, Size, user_id
from gateway.database.engine import Database
from gateway.database.people_tables import memberships, users
from gateway.history import binding
from gateway.history.importer import Importer
from gateway.history.sql_thread import SqlThread
from gateway.ledger.gather_all import batches
from gateway.metrics import Metrics
from gateway.store import Store

ROWS_AT_ONCE = 5_000
MADE_AT = 1_700_000_000_000_000


def fill_people(database: Database, size: Size) -> None:
    """The users and what they belong to."""
    with database.writing() as connection:
        _insert(connection, users, map(_user, [WIDE, *map(user_id, range(size.accounts))]))
        _insert(connection, memberships, _memberships(size))


def _user(id_: str) -> dict[str, Any]:
    email = _email(id_)
    proved = {"proved_at": MADE_AT, "proved_by": "mail"}
    return {"id": id_, "email": email, "name": "", "role": "none", "created_at": MADE_AT, **proved}


def _email(id_: str) -> str:
    return f"{id_.removeprefix('usr_')}@example.com"


def _memberships(size: Size) -> Iterator[dict[str, Any]]:
    yield _membership(WIDE, LARGE, "owner")
    for number, account in enumerate(size.account_names()):
        yield _membership(user_id(number), account, "owner")
        yield _membership(user_id(number), LARGE, "member")
        if number < size.width:
            yield _membership(WIDE, account, "owner")


def _membership(user: str, account: str, role: str) -> dict[str, Any]:
    row = {"user_id": user, "email": _email(user), "account": account, "role": role}
    return row | {"created_at": MADE_AT, "given_by": "site"}


def _insert(connection: Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    for some in batches(rows, ROWS_AT_ONCE):
        connection.execute(table.insert(), some)


async def import_history(store: Store, database: Database, size: Size) -> None:
    """Bring every ledger line into the database; the importer must not run."""
    sql = SqlThread()
    try:
        await binding.bind(store, database, sql)
        importer = Importer(store, database, sql, Metrics())
        importer.add([LARGE, *size.account_names()])
        while importer.waiting:
            await importer.step()
    finally:
        sql.close()

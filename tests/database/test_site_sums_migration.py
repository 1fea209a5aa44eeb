"""The sums over all accounts of what was there before come from the lines and from the sums by account."""

from __future__ import annotations

import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.tables import money_site_hourly, refusals_site_hourly
from gateway.history.refusals import add_batches
from gateway.ledger.refusal_counts import RefusalBatch
from tests.databases import database_address
from tests.history.made_lines import Account

__all__ = ["database_address"]
TABLES = (money_site_hourly, refusals_site_hourly)


def rows(database: Database) -> list[list[tuple[object, ...]]]:
    with database.reading() as connection:
        return [
            [tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))]
            for table in TABLES
        ]


def test_sums_of_the_site_come_from_the_lines_and_refusals_of_before(database_address: DatabaseAddress) -> None:
    database = Database.open(database_address)
    for name in ("acme", "other"):
        account = Account(database, name)
        account.line("2026-10-01T09:30", "open", 7)
        account.line("2026-10-01T10:10", "topup", 100)
        account.line("2026-10-01T10:59", "topup", -30)
        account.call("2026-10-01T10:15", 5)
        account.line("2026-10-01T10:20", "refund", 5, key="key_1", model="m")
        account.line("2026-10-01T10:30", "refund", 2)
        account.flush()
    refusals = [(7, "acme", "k", "m", "c", 2), (7, "other", "k", "m", "c", 3), (8, "", "", "", "c", 1)]
    add_batches(database, [RefusalBatch("b1", refusals)])
    before = rows(database)
    assert [len(table) for table in before] == [3, 2]
    with database.writing() as connection:  # as version 0142 had left it
        for table in TABLES:
            table.drop(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0142'")
    database.close()
    database = Database.open(database_address)
    assert rows(database) == before
    database.close()

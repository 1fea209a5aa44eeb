"""The sums that a migration adds are those of the tables that were there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.tables import statements, usage_monthly, usage_site_hourly
from tests.databases import database_address, postgres
from tests.history.made_lines import Account

__all__ = ["database_address", "postgres"]

NEW = (usage_monthly, usage_site_hourly)
#: Undoes the migrations after this one.
LATER = (
    "DROP TABLE sign_ups",
    "ALTER TABLE sessions DROP COLUMN issuer",
    "ALTER TABLE sign_in_links DROP COLUMN arrival",
    "DROP INDEX identities_user_issuer",
    "ALTER TABLE identities DROP COLUMN granted",
    "ALTER TABLE identities DROP COLUMN used_at",
    "DROP INDEX usage_daily_key",
    "DROP INDEX usage_daily_user",
    "DROP INDEX ledger_lines_movements",
)


def rows(database: Database) -> list[list[Any]]:
    with database.reading() as connection:
        return [list(connection.execute(sa.select(table).order_by(*table.primary_key.columns))) for table in NEW]


def test_sums_by_month_and_by_hour_of_the_site_come_from_the_older_sums(database_address: DatabaseAddress) -> None:
    database = Database.open(database_address)
    for name in ("acme", "other"):
        account = Account(database, name)
        for at in ("2026-01-31T23:59", "2026-02-01T00:00", "2026-02-28T12:00", "2026-12-31T23:00"):
            account.call(at, 5, user="usr_1", first_token_ms=70)
        account.flush()
    before = rows(database)
    assert [len(table) for table in before] == [6, 4]
    with database.writing() as connection:  # as version 0030 had left it
        for table in (*NEW, statements):
            table.drop(connection)
        for column in ("upstream_cost", "upstream_cost_known"):
            connection.exec_driver_sql(f"ALTER TABLE usage_daily_tags DROP COLUMN {column}")
        for statement in LATER:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0030'")
    database.close()
    database = Database.open(database_address)
    assert rows(database) == before
    database.close()

"""The sums that a migration adds are those of the tables that were there."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.tables import (
    DURATION_CELLS,
    FIRST_TOKEN_CELLS,
    MAXIMA,
    ROLLUPS,
    statements,
    usage_monthly,
    usage_site_hourly,
)
from tests.database.test_sign_up_migration import AFTER_0135
from tests.databases import database_address
from tests.history.made_lines import Account

__all__ = ["database_address"]

NEW = (usage_monthly, usage_site_hourly)
TIME_COLUMNS = (*DURATION_CELLS, *FIRST_TOKEN_CELLS, *MAXIMA)  # of 0120
#: Undoes the migrations after this one.
LATER = (
    *AFTER_0135,
    "DROP TABLE sign_ups",
    "ALTER TABLE sessions DROP COLUMN issuer",
    "ALTER TABLE sign_in_links DROP COLUMN arrival",
    "ALTER TABLE sign_in_links DROP COLUMN created_by",
    "DROP INDEX identities_user_issuer",
    "ALTER TABLE identities DROP COLUMN granted",
    "ALTER TABLE identities DROP COLUMN used_at",
    "DROP INDEX usage_daily_key",
    "DROP INDEX usage_daily_user",
    "DROP INDEX ledger_lines_movements",
    "DROP INDEX superseded_lines_request",
    "ALTER TABLE superseded_lines DROP COLUMN acknowledged_at",
    "DROP TABLE promised_accounts",
    "ALTER TABLE users DROP COLUMN proved_at",
    "ALTER TABLE users DROP COLUMN proved_by",
    "ALTER TABLE users DROP COLUMN address_set_by",
    "ALTER TABLE memberships DROP COLUMN given_by",
    "ALTER TABLE invitations DROP COLUMN mailed_at",
    "ALTER TABLE invitations DROP COLUMN maker_issuer",
    "ALTER TABLE invitations DROP COLUMN former_user",
    "ALTER TABLE sign_in_links DROP COLUMN maker_issuer",
    "ALTER TABLE identities DROP COLUMN verified_at",
    "DROP TABLE call_addresses",
    "DROP TABLE key_addresses",
)


def rows(database: Database) -> list[list[Any]]:
    with database.reading() as connection:
        queries = [
            sa.select(*(column for column in table.columns if column.name not in TIME_COLUMNS)).order_by(
                *table.primary_key.columns
            )
            for table in NEW
        ]
        return [list(connection.execute(query)) for query in queries]


def drop_time_columns(connection: sa.Connection, *tables: sa.Table) -> None:
    for table in tables:
        for column in TIME_COLUMNS:
            connection.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN {column}")


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
        drop_time_columns(connection, *(table for table in ROLLUPS if table not in NEW))
        for statement in LATER:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0030'")
    database.close()
    database = Database.open(database_address)
    assert rows(database) == before
    database.close()

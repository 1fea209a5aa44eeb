"""Links to sign up of before stay open, and their addresses can have further ones."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.people_tables import sign_ups
from tests.databases import database_address

__all__ = ["database_address"]


def row(number: int, email: str) -> dict[str, object]:
    times = {"created_at": number, "expires_at": number + 1}
    return {"token_hash": bytes([number]) * 32, "email": email, "network": "net", **times}


def restore_sign_ups(connection: Connection) -> None:
    """Make the empty table of the version before, in which an address has one link."""
    sign_ups.drop(connection)
    unique = sa.UniqueConstraint("email", name="sign_ups_email")
    columns = (column._copy() for column in sign_ups.columns)
    sa.Table("sign_ups", sa.MetaData(), *columns, unique).create(connection)
    for name, of in (("sign_ups_expires", "expires_at"), ("sign_ups_network", "network, expires_at")):
        connection.exec_driver_sql(f"CREATE INDEX {name} ON sign_ups ({of})")


#: Undoes 0140 and later migrations; the table of the memberships must be empty.
AFTER_0135 = (
    "DROP TABLE money_site_hourly",
    "DROP TABLE refusals_site_hourly",
    "DROP TABLE memberships",
    "DROP INDEX users_id_email",
    "CREATE TABLE memberships (user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE, account TEXT NOT NULL, "
    "role TEXT NOT NULL, created_at BIGINT NOT NULL, given_by TEXT NOT NULL DEFAULT '', "
    "PRIMARY KEY (user_id, account))",
    "CREATE INDEX memberships_account ON memberships (account)",
    "DROP INDEX users_role",
    "DROP INDEX ledger_lines_session",
    "ALTER TABLE ledger_lines DROP COLUMN session",
)


def as_0135(connection: Connection) -> None:
    """Make the tables of version 0135."""
    for statement in AFTER_0135:
        connection.exec_driver_sql(statement)


def test_links_to_sign_up_of_before_stay_and_their_addresses_get_further_ones(
    database_address: DatabaseAddress,
) -> None:
    database = Database.open(database_address)
    with database.writing() as connection:  # as version 0134 had left it
        as_0135(connection)
        restore_sign_ups(connection)
        connection.execute(sign_ups.insert(), [row(1, "ann@example.com"), row(2, "bob@example.com")])
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0134'")
    database.close()
    database = Database.open(database_address)
    with database.writing() as connection:
        connection.execute(sign_ups.insert().values(row(3, "ann@example.com")))
        query = sa.select(*sign_ups.columns).order_by(sign_ups.c.token_hash)
        found = [dict(one) for one in connection.execute(query).mappings()]
        names = {index["name"] for index in sa.inspect(connection).get_indexes("sign_ups")}
        unique = sa.inspect(connection).get_unique_constraints("sign_ups")
    database.close()
    emails = ("ann@example.com", "bob@example.com", "ann@example.com")
    assert found == [row(number, email) for number, email in enumerate(emails, 1)]
    assert (names, unique) == ({"sign_ups_address", "sign_ups_expires", "sign_ups_network"}, [])

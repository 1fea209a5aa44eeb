"""Connections of before are verified if the provider has proved the address of the user by them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.people_tables import identities, users
from tests.database.test_sign_up_migration import as_0135, restore_sign_ups
from tests.databases import database_address

__all__ = ["database_address"]

#: Users with how they are proved, and the times of their connections in seconds; they are proved at 1,000.
OF_BEFORE: dict[str, tuple[str, list[float]]] = {
    "came": ("provider", [1000.001]),
    "earlier": ("provider", [10]),
    "added": ("provider", [999.999, 2000]),
    "mail": ("mail", [1000.001]),
    "unproved": ("", [10]),
}


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-9")
def test_connections_of_before_are_verified_where_the_provider_has_proved_the_address(
    database_address: DatabaseAddress,
) -> None:
    database = Database.open(database_address)
    with database.writing() as connection:  # as version 0130 had left it
        as_0135(connection)
        for table, column in (
            ("identities", "verified_at"),
            ("invitations", "maker_issuer"),
            ("invitations", "former_user"),
            ("memberships", "given_by"),
            ("sign_in_links", "maker_issuer"),
            ("users", "address_set_by"),
        ):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        restore_sign_ups(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0130'")
        for name, (proof, times) in OF_BEFORE.items():
            row = {"id": name, "email": f"{name}@x.com", "name": "", "role": "none", "created_at": 7}
            proved = {"proved_by": proof, "proved_at": 1_000_000_000 if proof else None}
            connection.execute(users.insert().values(row | proved))
            for number, at in enumerate(times):
                connected = {"user_id": name, "issuer": f"https://{number}.test", "subject": name}
                row = {**connected, "created_at": int(at * 1e6), "granted": "{}"}
                connection.execute(sa.insert(sa.table("identities", *map(sa.column, row))).values(row))
    database.close()
    database = Database.open(database_address)
    with database.reading() as connection:
        columns = identities.c
        query = sa.select(columns.user_id, columns.created_at).where(columns.verified_at.is_not(None))
        found = sorted((user, at / 1e6) for user, at in connection.execute(query))
    database.close()
    assert found == [("added", 999.999), ("came", 1000.001), ("earlier", 10)]

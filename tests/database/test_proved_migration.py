"""Users of before are proved if mail or a provider proved them; the others keep their roles and are listed."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import by_configuration, command_line
from gateway.admin.audit_trail import record
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.people_tables import memberships, users
from gateway.database.tables import ROLLUPS, call_addresses, key_addresses
from tests.database.test_reports_migration import drop_time_columns
from tests.database.test_sign_up_migration import as_0135, restore_sign_ups
from tests.databases import database_address

__all__ = ["database_address"]

NEW_COLUMNS = {
    "users": ("proved_at", "proved_by", "address_set_by"),
    "invitations": ("mailed_at", "maker_issuer", "former_user"),
    "sign_in_links": ("created_by", "maker_issuer"),
    "identities": ("verified_at",),
    "memberships": ("given_by",),
}


def add(connection: Connection, name: str, rule: str, role: str = "none") -> None:
    """A user of before, with the events of the version before."""
    row = {"id": f"usr_{name}", "email": f"{name}@x.com", "name": "", "role": role, "created_at": 7}
    connection.execute(sa.insert(sa.table("users", *map(sa.column, row))).values(row))
    actor = by_configuration(rule) if rule else command_line("root")
    record(connection, actor, "users.create", f"user:usr_{name}", after={"role": role, "personal": ["email"]})


@pytest.mark.holds("people.md#proved-addresses-12", "security.md#e-mail-addresses-and-invitations-4")
def test_users_of_before_are_proved_where_mail_or_a_provider_proved_them(database_address: DatabaseAddress) -> None:
    database = Database.open(database_address)
    with database.writing() as connection:  # as version 0090 had left it
        as_0135(connection)
        for table, columns in NEW_COLUMNS.items():
            for column in columns:
                connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.exec_driver_sql("DROP INDEX superseded_lines_request")  # of 0110
        connection.exec_driver_sql("ALTER TABLE superseded_lines DROP COLUMN acknowledged_at")
        drop_time_columns(connection, *ROLLUPS)
        for later in (call_addresses, key_addresses):
            later.drop(connection)
        restore_sign_ups(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0090'")
        add(connection, "mail", "sign-up")
        add(connection, "oidc", "oidc.corp")
        add(connection, "operator", "", "operator")
        add(connection, "owner", "")
        add(connection, "moved", "sign-up")
        add(connection, "named", "sign-up")
        row = {"user_id": "usr_owner", "account": "acme", "role": "owner", "created_at": 7}
        connection.execute(sa.insert(sa.table("memberships", *map(sa.column, row))).values(row))
        root = command_line("root")
        record(connection, root, "users.edit", "user:usr_moved", after={"personal": ["email"]})
        record(connection, root, "users.edit", "user:usr_named", after={"personal": ["name"]})
    database.close()
    database = Database.open(database_address)
    with database.reading() as connection:
        wanted = users.c.id, users.c.proved_by, users.c.proved_at, users.c.role
        found = connection.execute(sa.select(*wanted)).all()
        members = connection.execute(sa.select(memberships.c.user_id, memberships.c.email, memberships.c.role)).all()
    database.close()
    assert {row.id[4:]: (row.proved_by, row.proved_at) for row in found} == {
        "mail": ("mail", 7),
        "oidc": ("provider", 7),
        "named": ("mail", 7),
        "operator": ("", None),
        "owner": ("", None),
        "moved": ("", None),
    }
    assert {row.id: row.role for row in found}["usr_operator"] == "operator" and members == [
        ("usr_owner", "owner@x.com", "owner")
    ]

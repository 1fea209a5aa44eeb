"""Lines of before have no session, and later ones are found by theirs."""

from __future__ import annotations

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.history.call_pages import CallFilter, read_calls
from tests.database.test_sign_up_migration import as_0135
from tests.databases import database_address
from tests.history.made_lines import Account

__all__ = ["database_address"]


def test_lines_of_before_have_no_session_and_later_ones_are_found_by_theirs(database_address: DatabaseAddress) -> None:
    database = Database.open(database_address)
    account = Account(database)
    account.call("2026-10-01T10:00", 5)
    account.flush()
    with database.writing() as connection:  # as version 0135 had left it
        as_0135(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0135'")
    database.close()
    database = Database.open(database_address)
    account = Account(database)
    account.call("2026-10-01T11:00", 6, session="agent-7")
    account.flush()
    with database.reading() as connection:
        of_all, of_one = (
            read_calls(connection, CallFilter(account="acme", since=0, until=2**60, session=session), limit=9)
            for session in ("", "agent-7")
        )
    database.close()
    assert [call.session for call in of_all] == ["agent-7", ""]
    assert [call.amount for call in of_one] == [-6]

"""Rows that are written many at a time are stored as they were given, and errors are those of other statements."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from gateway.database.bulk import Row, add_rows, insert_rows, update_rows
from gateway.database.engine import Database
from gateway.database.tables import import_state, ledger_lines, statements, usage_site_daily
from tests.databases import database, database_address

__all__ = ["database", "database_address"]

ODD = ("", "a\tb\nc\r\\d\\N", "\\N", "\\.", "'\"`;--", "é 漢 😀", "\x01\x1f\x7f", "NULL")


def state(account: str, number: int = 7) -> Row:
    """A row of `import_state`."""
    return (account, 0, "0-0", 0, b"", number, "1-0", bytes(range(256)), b"\x00\\", -(2**63), 2**63 - 1, 0)


def line(seq: int, text: str = "", cost: int | None = None) -> Row:
    """A row of `ledger_lines`."""
    call = ("k", "m", "", "p", "chat", "ok", True, 1, 2, 3, 4, 5)
    return ("acme", seq, "1-1", 1, text, "use", -1, 0, 0, False, text, b"h", *call, text, "", cost, text)


def found(database: Database, table: sa.Table) -> list[Row]:
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))]


def test_texts_bytes_numbers_and_nulls_are_stored_as_given(database: Database) -> None:
    lines = [line(n, text, cost=None if n % 2 else n) for n, text in enumerate(ODD)]
    states = [state(f"a{n}") for n in range(3)]
    with database.writing() as connection:
        insert_rows(connection, ledger_lines, lines)
        insert_rows(connection, import_state, states)
        insert_rows(connection, statements, [])
    assert found(database, ledger_lines) == lines
    assert found(database, import_state) == states


def test_rows_change_if_they_have_the_known_values(database: Database) -> None:
    with database.writing() as connection:
        insert_rows(connection, import_state, [state("a"), state("b")])
        rows = [("5-5", 8, "a", 7), ("6-6", 9, "b", 6), ("7-7", 9, "c", 7)]
        assert update_rows(connection, import_state, ("last_id", "last_seq"), ("account", "last_seq"), rows) == 1
        assert update_rows(connection, import_state, ("last_id",), ("account",), []) == 0
    assert [(row[0], row[5], row[6]) for row in found(database, import_state)] == [("a", 8, "5-5"), ("b", 7, "1-0")]


def test_sums_are_added_to_the_rows_that_are_there_and_other_columns_stay(database: Database) -> None:
    labels = ("day", "model", "provider", "endpoint", "outcome")
    with database.writing() as connection:
        first = [(1, text, "p", "chat", "ok", 10, 2**62) for text in sorted(ODD)]
        add_rows(connection, usage_site_daily, labels, ("calls", "cost"), first)
        add_rows(connection, usage_site_daily, labels, ("estimated",), [(1, "NULL", "p", "chat", "ok", 3)])
        second = [(1, "NULL", "p", "chat", "ok", -4, 5), (2, "NULL", "p", "chat", "ok", 1, -7)]
        add_rows(connection, usage_site_daily, labels, ("calls", "cost"), second)
        add_rows(connection, usage_site_daily, labels, ("calls",), [])
    with database.reading() as connection:
        columns = usage_site_daily.c
        rows = connection.execute(
            sa.select(columns.day, columns.model, columns.calls, columns.cost, columns.estimated, columns.first_token_9)
        ).all()
    expected = {(1, text, 10, 2**62, 0, 0) for text in ODD if text != "NULL"}
    assert {tuple(row) for row in rows} == {*expected, (1, "NULL", 6, 2**62 + 5, 3, 0), (2, "NULL", 1, -7, 0, 0)}


def test_errors_are_those_of_other_statements_and_undo_everything(database: Database) -> None:
    for rows, errors in (
        ([line(1), line(2), line(1)], sa.exc.IntegrityError),
        ([line(1), line(2**64)], (sa.exc.DataError, OverflowError)),
        ([line(1), line(2, "\udcff")], UnicodeEncodeError),
    ):
        with pytest.raises(errors), database.writing() as connection:
            insert_rows(connection, ledger_lines, rows)
        assert found(database, ledger_lines) == []
    sums = (1, "m", "p", "chat", "ok", 2**64)
    with pytest.raises((sa.exc.DataError, OverflowError)), database.writing() as connection:
        add_rows(connection, usage_site_daily, ("day", "model", "provider", "endpoint", "outcome"), ("cost",), [sums])
    assert found(database, usage_site_daily) == []

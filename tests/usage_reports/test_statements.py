"""Statements add up exactly, are final once their month is complete, and never change after that."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from gateway.accounts.accounts import StoreDirectory
from gateway.admin.actor import Actor, command_line
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import user_by_id
from gateway.amounts import NANO, format_amount, parse_amount
from gateway.database.engine import Database
from gateway.database.tables import ledger_lines, statements
from gateway.errors import Forbidden, GatewayError, InternalError, InvalidValue, NotFound
from gateway.history import month_lines
from gateway.history.sql_thread import SqlThread
from gateway.people.memberships import put_membership
from gateway.people.users import insert_user
from gateway.reports import statements as module
from gateway.reports.csv_file import csv_text
from gateway.reports.statement import CSV_COLUMNS
from gateway.reports.statement_page import statement_page
from gateway.reports.statements import Statements
from tests.history.made_lines import Account
from tests.world import OpenWorld, World

ROOT = command_line("root")
OWNER = Actor(kind="user", id="usr_1", memberships={"acme": "owner"})
STRANGER = Actor(kind="user", id="usr_2", memberships={"other": "owner", "acme": "member"})


class Site:
    """The service over a store whose clock a test may set ahead, and lines in the database."""

    def __init__(self, w: World, database: Database, sql: SqlThread, account: Account) -> None:
        self.world = w
        self.account = account
        self.service = Statements(Transactions(database, sql), w.store, StoreDirectory(w.store))

    async def imported(self) -> None:
        """Write the lines; the store has as many."""
        self.account.flush()
        await self.world.store.client.hset("{a:acme}", "seq", self.account.seq)


OpenSite = Callable[..., "AsyncIterator[Site]"]


@pytest.fixture
def site(world: OpenWorld, database: Database, sql: SqlThread):
    @asynccontextmanager
    async def opened() -> AsyncIterator[Site]:
        async with world() as w:
            await w.accounts.create("acme")
            with database.writing() as connection:
                insert_user(connection, ROOT, "owner@example.com", "", "none", user_id=OWNER.id)
                put_membership(connection, ROOT, user_by_id(connection, OWNER.id), "acme", "owner", given_by="site")
            account = Account(database)
            account.line("2025-12-30T10:00", "open", 5 * NANO, request_id="open")
            account.call("2025-12-31T23:59", 1000)
            account.line("2026-01-01T00:00", "topup", 3 * NANO, request_id="pay_1", note="=SUM(A1) <b>thanks</b>")
            first = account.call("2026-01-02T10:00", 500, uncollected=7)
            account.call("2026-01-03T10:00", 250, key="key_2", model="n", kind="reclaim", request_id="req_r")
            account.call("2026-01-03T10:05", 50, key="key_2", model="n", kind="adj", request_id="req_r")
            account.line("2026-01-20T10:00", "refund", 200, request_id="op_1", key="key_1", model="m", refunds=first)
            account.line("2026-01-31T23:59", "adj", -NANO, request_id="op_2", note="fee")
            account.call("2026-02-01T00:00", 900)
            site = Site(w, database, sql, account)
            await site.imported()
            yield site

    return opened


@pytest.mark.holds("operations/history.md#reports-and-statements-3")
async def test_month_is_the_balance_before_and_after_with_every_movement(site) -> None:
    async with site() as s:
        statement = await s.service.statement(OWNER, "acme", "2026-01")
        form = statement.json_form()
        expected = {
            "opening_balance": format_amount(5 * NANO - 1000),
            "credits": "3",
            "refunds": "0.0000002",
            "adjustments": "-1",
            "charges": "0.0000008",
            "uncollected": "0.000000007",
            "correction": "0",
            "closing_balance": format_amount(7 * NANO - 1000 - 800 + 200),
            "first_line": 3,
            "last_line": 8,
            "status": "final",
            "number": 1,
            "ledger": "matches",
        }
        assert {name: form[name] for name in expected} == expected
        assert [(one["model"], one["key"], one["calls"], one["amount"]) for one in form["charged"]] == [
            ("m", "key_1", 1, "0.0000005"),
            ("n", "key_2", 1, "0.0000003"),
        ]
        assert [(one["section"], one["line"]) for one in form["movements"]] == [
            ("credits", 3), ("refunds", 7), ("adjustments", 8),
        ]  # fmt: skip


@pytest.mark.holds("operations/history.md#reports-and-statements-3")
async def test_final_statement_does_not_change_and_the_next_one_begins_where_it_ended(site, database) -> None:
    async with site() as s:
        before = await s.service.statement(ROOT, "acme", "2026-01")
        s.account.call("2026-02-03T10:00", 77)
        await s.imported()
        assert await s.service.statement(ROOT, "acme", "2026-01") == before
        after = await s.service.statement(ROOT, "acme", "2026-02")
        assert (after.number, after.opening_balance, after.first_line) == (2, before.closing_balance, 9)
        with database.writing() as connection:
            connection.execute(statements.update().where(statements.c.number == 1).values(document="{}"))
        with pytest.raises(InternalError):
            await s.service.statement(ROOT, "acme", "2026-01")


@pytest.mark.holds("operations/history.md#reports-and-statements-3")
async def test_statement_is_preliminary_until_every_line_up_to_its_end_is_imported(site, monkeypatch) -> None:
    async with site() as s:
        await s.world.store.client.hset("{a:acme}", "seq", s.account.seq + 2)
        draft = await s.service.statement(ROOT, "acme", "2026-01")
        assert (draft.is_final, draft.missing_lines, draft.closing_balance) == (False, 2, 7 * NANO - 1600)
        await s.imported()
        now = datetime.now(UTC).strftime("%Y-%m")
        assert not (await s.service.statement(ROOT, "acme", now)).is_final
        monkeypatch.setattr(module, "GRACE", 10**18)
        assert not (await s.service.statement(ROOT, "acme", "2026-01")).is_final


@pytest.mark.holds("operations/history.md#reports-and-statements-3")
async def test_change_of_the_ledger_after_a_final_statement_is_a_correction_in_the_next_one(site, database) -> None:
    async with site() as s:
        before = await s.service.statement(ROOT, "acme", "2026-01")
        columns = ledger_lines.c
        with database.writing() as connection:  # as after a restored backup that lacks line 8
            gone = (columns.account == "acme", columns.seq == 8)
            connection.execute(ledger_lines.update().where(*gone).values(amount=0, hash=b"other"))
            later = columns.seq >= 8
            connection.execute(ledger_lines.update().where(later).values(balance=columns.balance + NANO))
        assert (await s.service.statement(ROOT, "acme", "2026-01")).ledger == "differs"
        after = await s.service.statement(ROOT, "acme", "2026-02")
        assert (after.opening_balance, after.correction) == (before.closing_balance, NANO)
        assert after.opening_balance + after.correction - after.charges == after.closing_balance


async def test_lines_that_do_not_add_up_have_no_statement(site, database) -> None:
    async with site() as s:
        columns = ledger_lines.c
        with database.writing() as connection:
            connection.execute(ledger_lines.update().where(columns.seq == 4).values(amount=columns.amount - 1))
        with pytest.raises(InternalError):
            await s.service.statement(ROOT, "acme", "2026-01")
        with database.reading() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(statements)) == 0


@pytest.mark.parametrize(
    ("actor", "account", "month", "error"),
    [
        (ROOT, "acme", "2026-13", InvalidValue),
        (ROOT, "acme", "2999-01", InvalidValue),
        (ROOT, "nobody", "2026-01", NotFound),
        (ROOT, "acme", "2025-11", NotFound),
        (STRANGER, "acme", "2026-01", Forbidden),
    ],
)
async def test_statement_that_is_not_possible_is_refused(
    site, actor: Actor, account: str, month: str, error: type[GatewayError]
) -> None:
    async with site() as s:
        with pytest.raises(error):
            await s.service.statement(actor, account, month)


async def test_file_and_page_have_every_amount_and_no_formula_or_markup_of_a_note(site, monkeypatch) -> None:
    monkeypatch.setattr(month_lines, "MOST_LISTED", 2)
    async with site() as s:
        statement = await s.service.statement(ROOT, "acme", "2026-01")
    rows = list(csv.DictReader(io.StringIO(csv_text(CSV_COLUMNS, statement.csv_records()))))
    *parts, closing = [parse_amount(row["amount"]) for row in rows]
    assert (sum(parts), closing) == (statement.closing_balance, statement.closing_balance)
    assert rows[1]["note"].startswith("'=SUM")
    page = statement_page(statement)
    assert "<b>thanks" not in page
    assert all(text in page for text in ("0.0000005", "Closing balance", "1 further movements", statement.hash))
    assert not any(text in page for text in ("http", "<script", "<link"))

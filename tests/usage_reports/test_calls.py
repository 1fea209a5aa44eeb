"""Pages of ledger lines over the store and the database, and the details of one call."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.accounts.accounts import StoreDirectory
from gateway.admin.actor import Actor, command_line
from gateway.admin.transactions import Transactions
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.database.engine import Database
from gateway.errors import Forbidden, InvalidValue, NotFound
from gateway.history.caller_addresses import add_addresses
from gateway.history.reader import read_newest_lines
from gateway.history.sql_thread import SqlThread
from gateway.ledger import LedgerLine
from gateway.ledger.caller_addresses import AddressBatch
from gateway.ledger.price_tables import store_prices
from gateway.metrics import Metrics
from gateway.people.users import insert_user
from gateway.reports.call_details import CallReader
from gateway.reports.line_pages import LinePages
from tests.history.importing import Importing
from tests.history.made_lines import Account, moment
from tests.ledger.test_archive import aged, busy
from tests.world import OpenWorld, World

ROOT = command_line("root")
OWNER = Actor(kind="user", id="usr_1", memberships={"acme": "owner"})
MEMBER = Actor(kind="user", id="usr_2", memberships={"acme": "member"})
STRANGER = Actor(kind="user", id="usr_2", memberships={"other": "owner"})


def pages_of(w: World, transactions: Transactions | None) -> LinePages:
    async def older(account: str, until: int, since: int, most: int) -> list[LedgerLine]:
        if transactions is None:
            return []
        return await transactions.read(read_newest_lines, account, until=until, since=since, most=most)

    return LinePages(w.store, StoreDirectory(w.store), older)


async def all_numbers(pages: LinePages, limit: int) -> list[int]:
    found, cursor = [], None
    while True:
        page = await pages.page(OWNER, "acme", limit=limit, before=cursor)
        assert len(page.lines) <= limit
        found += [line.n for line in page.lines]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_pages_have_each_line_once_though_old_ones_left_the_store(
    world: OpenWorld, database: Database, sql: SqlThread
) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=72, most=6)
        importing = Importing(w, database, sql, Metrics())
        await importing.sweep()
        assert await w.store.client.xlen("{a:acme}:lg") == 4
        for limit in (1, 3, 4, 10, 11):
            assert await all_numbers(pages_of(w, Transactions(database, sql)), limit) == list(range(10, 0, -1))
        assert (await pages_of(w, None).page(ROOT, "acme", limit=10)).lines[-1].kind == "carry"


async def test_page_that_is_not_possible_is_refused(world: OpenWorld) -> None:
    async with world() as w:
        await w.accounts.create("acme")
        pages = pages_of(w, None)
        calls: list[tuple[type[Exception], dict[str, Any]]] = [
            (InvalidValue, {"before": "nonsense"}),
            (InvalidValue, {"limit": 0}),
            (InvalidValue, {"limit": 1001}),
            (NotFound, {"account": "nobody"}),
            (Forbidden, {"actor": STRANGER}),
        ]
        for error, changed in calls:
            values: dict[str, Any] = {"actor": ROOT, "account": "acme"} | changed
            with pytest.raises(error):
                await pages.page(values.pop("actor"), values.pop("account"), **values)


async def test_call_is_shown_with_each_bucket_its_price_and_the_charge(
    world: OpenWorld, database: Database, sql: SqlThread
) -> None:
    price = Price(version="v1", input=1_000_000, output=3_000_000, per_request=500)
    usage = Usage(in_text=100, out_text=7)
    async with world() as w:
        await store_prices(w.store, [price])
        account = Account(database)
        request = account.call(
            "2026-10-01T10:00", price.cost(usage), usage=usage, price="v1", user="usr_2", hold=900, price_factor="1"
        )
        account.call("2026-10-02T10:00", 5, price="gone", upstream_cost=3)
        account.flush()
        with database.writing() as connection:
            insert_user(connection, ROOT, "ann@example.com", "", "none", user_id="usr_2")
        reader = CallReader(Transactions(database, sql), w.store)
        form = (await reader.show(ROOT, request)).json_form()
        assert form["cost"] == {
            "items": [
                {"bucket": "in_text", "count": "100", "price": "0.001", "per": 1_000_000, "amount": "0.0000001"},
                {"bucket": "out_text", "count": "7", "price": "0.003", "per": 1_000_000, "amount": "0.000000021"},
                {"bucket": "requests", "count": "1", "price": "0.0000005", "per": 1, "amount": "0.0000005"},
            ],
            "tier_factor": "1",
            "price_factor": "1",
            "minimum": "0",
            "total": "0.000000621",
        }
        assert (form["amount"], form["hold"], form["duration_ms"]) == ("0.000000621", "0.0000009", 300)
        assert (await reader.show(MEMBER, request)).request_id == request  # their own call
        assert form["address"] is None
        at = int(moment("2026-10-01T10:00").timestamp()) * 1_000_000
        add_addresses(database, [AddressBatch(at, [("key_1", "192.0.2.0/24", [request])])])
        assert (await reader.show(ROOT, request)).json_form()["address"] == "192.0.2.0/24"
        other = await reader.show(ROOT, "req_acme_2")
        assert (other.cost, other.json_form()["lines"][0]["upstream_cost"]) == (None, "0.000000003")
        assert "upstream_cost" not in (await reader.show(OWNER, "req_acme_2")).json_form()["lines"][0]
        for actor, request_id in ((ROOT, "nobody"), (STRANGER, request), (MEMBER, "req_acme_2")):
            with pytest.raises(NotFound):
                await reader.show(actor, request_id)


async def test_call_that_is_not_imported_yet_is_found_by_its_account(
    world: OpenWorld, database: Database, sql: SqlThread
) -> None:
    async with world() as w:
        await busy(w, 1)
        line = [line async for line in w.ledger.lines("acme")][-1]
        reader = CallReader(Transactions(database, sql), w.store)
        assert (await reader.show(ROOT, line.request_id, "acme")).json_form()["amount"] == "0.000000001"
        with pytest.raises(NotFound):
            await reader.show(ROOT, line.request_id)

"""The audit computes calls again whose lines are only in the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.database.tables import ledger_lines
from gateway.errors import StoreUnavailable
from gateway.history.audit import audit_history
from gateway.ledger.auditing import pages
from gateway.ledger.auditing.report import AuditReport
from gateway.ledger.price_tables import PRICES, store_prices
from tests.history.importing import Importing
from tests.ledger.records import book, quote_of, record_of
from tests.ledger.test_archive import aged
from tests.ledger.test_audit_loss import rewrite, with_meta
from tests.world import World

USAGE = Usage(in_text=10, out_text=5)
TABLES = [Price(version=f"v{number}", input=2_000_000 + number, output=4_000_000) for number in range(7)]
HOURS = 49  # lines leave the store after 48


async def calls(w: World, account: str, price: Price, number: int = 2) -> None:
    """That many calls of an account at a stored price; its lines are numbered from 2 on."""
    await store_prices(w.store, [price])
    key = await w.caller(account, balance=100_000)
    for place in range(number):
        held = await w.ledger.admit(f"req_{account}_{place}", key, quote_of(500, version=price.version))
        await book(w.ledger, held, structs.replace(record_of(price.cost(USAGE), usage=USAGE), endpoint="chat"))


async def moved(w: World, one: Importing, accounts: Sequence[str], *, most: int | None = None) -> None:
    """Import the lines, which then leave the store, or the first ones do."""
    for account in accounts:
        await aged(w, account, hours=HOURS, most=most)
    await one.all(*accounts)
    await one.all(*accounts)  # the first round imports, the second trims


@pytest.fixture
def whole(sql):
    """Audits the store and the database as `gateway audit` does."""

    async def audit(w: World, one: Importing, account: str | None = None) -> AuditReport:
        report = await w.ledger.audit(account)
        report.add(await audit_history(w.store, one.database, sql, account))
        return report

    return audit


def rules(report: AuditReport) -> list[tuple[str, str]]:
    return [(found.account, found.rule) for found in report.mismatches]


@pytest.mark.holds("operations/audit.md#audit-23")
async def test_every_call_is_computed_once_wherever_its_line_is(world, importing, whole) -> None:
    async with world() as w:
        one = importing(w)
        await calls(w, "acme", TABLES[0], 3)
        report = await whole(w, one)
        assert (report.mismatches, report.recomputed, report.not_recomputed, report.left_lines) == ([], 3, 0, 0)
        await moved(w, one, ["acme"], most=3)
        assert await w.store.client.xlen("{a:acme}:lg") == 1
        report = await whole(w, one)
        assert (report.mismatches, report.recomputed, report.not_recomputed, report.left_lines) == ([], 3, 0, 3)
        report = await whole(w, one, "acme")
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 3, 0)


@pytest.mark.holds("operations/audit.md#audit-22")
async def test_wrong_charge_is_found_after_its_line_left_the_store(world, importing, whole) -> None:
    """The line was changed before it was imported: hashes and sums agree."""
    async with world() as w:
        one = importing(w)
        await calls(w, "acme", TABLES[0])
        await rewrite(w, with_meta(2, usage={"in_text": 11, "out_text": 5}))
        await moved(w, one, ["acme"])
        assert await w.store.client.xlen("{a:acme}:lg") == 0
        for account in (None, "acme"):
            report = await whole(w, one, account)
            assert rules(report) == [("acme", "history cost req_acme_0")]
            assert not report.clean


@pytest.mark.holds("operations/audit.md#audit-22")
@pytest.mark.parametrize("table", [None, b"no JSON"], ids=["missing", "unreadable"])
async def test_price_table_that_a_line_of_the_database_names_and_the_store_lacks_is_a_finding(
    world, importing, whole, table: bytes | None
) -> None:
    async with world() as w:
        one = importing(w)
        await calls(w, "acme", TABLES[0])
        await moved(w, one, ["acme"])
        await w.store.client.hdel(PRICES, "v0")
        if table is not None:
            await w.store.client.hset(PRICES, "v0", table)
        report = await whole(w, one)
        assert rules(report) == [("acme", "history price_table v0")]
        assert (report.mismatches[0].found, report.not_recomputed) == ("none, and 2 lines name it", 2)


@pytest.mark.holds("operations/audit.md#audit-22")
async def test_unreadable_line_of_the_database_is_a_finding(world, importing, whole, database) -> None:
    async with world() as w:
        one = importing(w)
        await calls(w, "acme", TABLES[0])
        await moved(w, one, ["acme"])
        with database.writing() as connection:
            connection.execute(ledger_lines.update().where(ledger_lines.c.seq == 2).values(meta="no JSON"))
        assert ("acme", "history line 2") in rules(await whole(w, one))


@pytest.mark.holds("operations/audit.md#audit-23")
async def test_lost_call_is_computed_once_when_its_amendment_is_still_in_the_store(world, importing, whole) -> None:
    async with world() as w:
        one = importing(w)
        await store_prices(w.store, TABLES)
        key = await w.caller(balance=100_000)
        hold = await w.ledger.admit("req_lost", key, quote_of(500, version="v0"))
        hold.used = 7
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        assert await w.ledger.reclaim("acme") == 1
        await moved(w, one, ["acme"])
        report = await whole(w, one)
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 0, 1)
        record = structs.replace(record_of(TABLES[0].cost(USAGE), usage=USAGE), endpoint="chat")
        await book(w.ledger, hold, record)
        await one.all("acme")
        assert await w.store.client.xlen("{a:acme}:lg") == 1
        report = await whole(w, one)
        assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 1, 0)


class _WithoutPrices:
    """A store whose server of the price tables is away."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.links = store.links
        self.asked = 0

    def link(self, key: str) -> Any:
        if key == PRICES:
            self.asked += 1
            raise StoreUnavailable("the server is away")
        return self._store.link(key)


@pytest.mark.holds("operations/audit.md#audit-23")
async def test_price_tables_that_cannot_be_read_are_named_as_not_reached(
    world: Any, importing: Any, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE", 1)
    async with world() as w:
        one = importing(w)
        names = ["acme", "other", "umbra"]
        for name in names:
            await calls(w, name, TABLES[0])
        await moved(w, one, names)
        links: Any = _WithoutPrices(w.store)
        report = await audit_history(links, one.database, sql)
        assert (report.unreachable, report.clean) == (["price tables"], False)
        assert links.asked == 1


async def planted(w: World, one: Importing, whole: Any, number: int) -> float:
    """Three planted changes over that many accounts are found by one audit of all; its seconds."""
    names = [f"company-{place:04d}" for place in range(number)]
    for place, name in enumerate(names):
        await calls(w, name, TABLES[place % len(TABLES)])
    report = await whole(w, one)
    assert (report.mismatches, report.recomputed, report.not_recomputed) == ([], 2 * number, 0)
    left = names[: number // 2]
    in_database, in_store = left[len(left) // 3], names[-number // 4]
    # This one was wrong before it was imported, so that its hashes agree.
    wrong = "wrong-from-the-start"
    await calls(w, wrong, TABLES[0])
    await rewrite(w, with_meta(2, price="v3"), account=wrong)
    await moved(w, one, [*left, wrong])
    await one.all(*names)
    await rewrite(w, with_meta(3, usage={"in_text": 11, "out_text": 5}), account=in_store)
    with one.database.writing() as connection:
        c = ledger_lines.c
        changed = ledger_lines.update().where(c.account == in_database, c.seq == 2)
        text = connection.scalar(ledger_lines.select().with_only_columns(c.meta).where(*changed._where_criteria))
        connection.execute(changed.values(meta=text.replace('"in_text":10', '"in_text":11')))
    began = time.perf_counter()
    report = await whole(w, one)
    seconds = time.perf_counter() - began
    found = set(rules(report))
    assert (in_database, f"history cost req_{in_database}_0") in found
    assert (in_store, f"cost req_{in_store}_1") in found
    assert (wrong, f"history cost req_{wrong}_0") in found
    assert {account for account, _ in found} == {in_database, in_store, wrong}
    assert (report.recomputed, report.not_recomputed) == (2 * (number + 1), 0)
    return seconds


async def test_planted_changes_are_found_among_many_accounts_in_one_audit(world, importing, whole) -> None:
    async with world() as w:
        await planted(w, importing(w), whole, 40)


@pytest.mark.slow
async def test_planted_changes_are_found_among_a_thousand_accounts_in_one_audit(
    world, importing, whole, record_property
) -> None:
    async with world() as w:
        seconds = await planted(w, importing(w), whole, 1000)
        record_property("audit_seconds", seconds)
        print(f"audit of 1,000 accounts: {seconds:.2f} s")
        assert seconds < 60

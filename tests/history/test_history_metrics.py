"""What the importer's rounds say about the books: missing lines, debts, spending by group."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.history import importer
from gateway.metrics import UNKNOWN
from tests.history.importing import Importing
from tests.ledger.records import settle
from tests.ledger.test_archive import busy
from tests.world import UNIT


def gauge(one: Importing, name: str, *labels: str) -> Any:
    return one.metrics._gauges.get((f"gateway_{name}", labels))


async def test_lines_that_the_database_lacks_are_counted_until_they_are_imported(world, importing, monkeypatch) -> None:
    monkeypatch.setattr(importer, "MAX_PAGE", 4)
    monkeypatch.setattr(importer, "MIN_PAGE", 2)
    async with world() as w:
        await busy(w, 20)
        one = importing(w)
        await one.service.attempt()
        opened = one.service._opened
        assert opened is not None
        opened.importer._waiting.clear()
        opened.importer._queued.clear()
        lines = len(await one.in_store())
        imported = len(one.lines())
        opened.importer.add_behind({"acme": lines - imported})
        assert gauge(one, "importer_lag_lines") == lines - imported
        await one.all("acme")
        await one.same()
        assert gauge(one, "importer_lag_lines") == 0


async def test_sweep_counts_the_lines_of_accounts_that_cannot_be_imported(world, importing) -> None:
    async with world() as w:
        await busy(w)
        third = (await w.store.client.xrange("{a:acme}:lg"))[2][0]
        await w.store.client.xdel("{a:acme}:lg", third)
        one = importing(w)
        await one.sweep()
        assert gauge(one, "importer_lag_lines") == 10


async def test_accounts_below_zero_and_below_their_floor_are_counted(world, importing) -> None:
    async with world() as w:
        for name in ("fine", "poor", "line"):
            await w.accounts.create(name, balance=UNIT)
        await w.store.client.hset("{a:line}", "floor", -5 * UNIT)
        for name in ("poor", "line"):
            await w.accounts.credit(name, -3 * UNIT, allow_negative=True, force=True)
        one = importing(w)
        await one.sweep()
        assert (gauge(one, "accounts_below", "zero"), gauge(one, "accounts_below", "floor")) == (2, 1)
        await w.accounts.credit("poor", 10 * UNIT)
        await one.sweep()
        assert (gauge(one, "accounts_below", "zero"), gauge(one, "accounts_below", "floor")) == (1, 0)


async def test_spending_is_counted_once_by_group(world, importing) -> None:
    async with world() as w:
        keys = [await w.caller("a"), await w.caller("b", group="vip"), await w.caller("c", group="vip")]
        vip = frozenset({"default", "vip"})
        for key, cost in zip(keys, (1, 2, 4), strict=True):
            await settle(w.ledger, await w.admit(key, cost * UNIT, groups=vip), cost * UNIT)
        one = importing(w)
        await one.all("a", "b", "c")
        await one.all("a", "b", "c")
        await one.sweep()
        counted = {group: one.count("gateway_group_spend", group) for group in ("default", "vip", UNKNOWN)}
        assert counted == {"default": pytest.approx(1), "vip": pytest.approx(6), UNKNOWN: 0}

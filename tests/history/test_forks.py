"""A store that lost the end of a ledger: the database follows it, and keeps what was lost aside."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from gateway.database.tables import superseded_lines
from gateway.history import forks, importer
from tests.history.importing import Importing
from tests.ledger.records import settle
from tests.ledger.test_archive import busy
from tests.world import World

LINES, ACCOUNT = "{a:acme}:lg", "{a:acme}"


async def lose(world: World, lines: int) -> None:
    """Let the store have lost the last lines of the account, as a failover to a replica behind would."""
    client: Any = world.store.client
    kept = await client.xrange(LINES)
    for id_, _ in kept[-lines:]:
        await client.xdel(LINES, id_)
    remaining = kept[:-lines]
    fields = remaining[-1][1] if remaining else {b"n": b"0", b"bal": b"0"}
    await client.hset(ACCOUNT, mapping={"seq": fields[b"n"], "bal": fields[b"bal"]})


def superseded(one: Importing) -> list[int]:
    with one.database.reading() as connection:
        return list(connection.scalars(sa.select(superseded_lines.c.seq).order_by(superseded_lines.c.id)))


@pytest.mark.holds("operations/history.md#history-12")
async def test_lost_tail_is_superseded_and_the_new_lines_are_imported(world, importing, caplog) -> None:
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        await one.all("acme")
        await lose(w, 3)
        for cost in (70, 80):
            await settle(w.ledger, await w.admit(key), cost)
        await one.all("acme")
        await one.same()
        assert superseded(one) == [8, 9, 10]
        assert one.totals() == (1 + 2 + 3 + 4 + 5 + 6 + 70 + 80,) * 3
        assert one.totals("calls") == (8, 8, 8)
        assert one.count("gateway_importer_forks") == 1
        assert "the store has lost the last lines of acme: 3 lines of the database were superseded" in caplog.text


@pytest.mark.holds("operations/history.md#history-12")
async def test_lost_tail_without_new_lines_is_found_by_the_sweep(world, importing) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)
        await one.all("acme")
        await lose(w, 2)
        await one.sweep()
        await one.same()
        assert superseded(one) == [9, 10]


async def test_lost_tail_with_as_many_new_lines_of_other_amounts_is_found_by_the_sweep(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        await one.all("acme")
        await lose(w, 2)
        for cost in (70, 80):
            await settle(w.ledger, await w.admit(key), cost)
        await w.store.client.delete("history:touched")
        await one.sweep()
        await one.same()
        assert one.count("gateway_importer_forks") == 1


@pytest.mark.holds("operations/history.md#history-12")
@pytest.mark.parametrize("lost", [4, 5, 9, 10, 11, 20, 21])
async def test_fork_is_found_at_any_depth(world, importing, monkeypatch, lost) -> None:
    monkeypatch.setattr(forks, "PAGE", 5)
    monkeypatch.setattr(importer, "MAX_PAGE", 7)
    async with world() as w:
        key = await busy(w, 20)
        one = importing(w)
        await one.all("acme")
        await lose(w, lost)
        await w.ledger.credit("acme", 10**9)
        await settle(w.ledger, await w.admit(key), 5)
        await one.all("acme")
        await one.same()
        assert len(superseded(one)) == lost


async def test_forks_of_one_account_one_after_the_other_are_all_kept(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        for cost in (100, 200, 300):
            await one.all("acme")
            await lose(w, 1)
            await settle(w.ledger, await w.admit(key), cost)
        await one.all("acme")
        await one.same()
        assert superseded(one) == [10, 10, 10]
        assert one.totals() == (36 + 300,) * 3

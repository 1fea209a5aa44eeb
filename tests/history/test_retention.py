"""History older than `database.keep` goes, whole days at a time, and what is left still adds up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gateway.database.tables import ROLLUPS
from gateway.history.audit import audit_history
from tests.ledger.records import settle
from tests.ledger.test_archive import aged, busy


@pytest.mark.holds("operations/history.md#history-9")
async def test_old_lines_become_the_opening_sum(world, importing, sql) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=24 * 40, most=7)
        one = importing(w, keep_history=timedelta(days=30))
        await one.sweep()
        await one.sweep()
        assert [line.n for line in one.lines()] == [8, 9, 10]
        state = one.state()
        assert (state.opening_seq, state.total, state.balance) == (7, -7 - 8 - 9, 10**10 - 45)
        assert one.totals() == (7 + 8 + 9,) * 3
        await settle(w.ledger, await w.admit(key), 5)
        await one.all("acme")
        assert [line.n for line in one.lines()] == [8, 9, 10, 11]
        assert (await audit_history(w.store, one.database, sql)).mismatches == []


async def test_account_of_which_every_line_is_old_goes_on(world, importing, sql) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=24 * 40)
        one = importing(w, keep_history=timedelta(days=30))
        await one.sweep()
        await one.sweep()
        assert one.lines() == []
        assert [one.sums(table) for table in ROLLUPS] == [[]] * len(ROLLUPS)
        await settle(w.ledger, await w.admit(key), 5)
        await one.all("acme")
        assert [line.n for line in one.lines()] == [11]
        assert (await audit_history(w.store, one.database, sql)).mismatches == []


async def test_old_lines_that_are_still_in_the_store_stay(world, importing) -> None:
    async with world() as w:
        await busy(w)
        await aged(w, hours=24 * 40)
        one = importing(w, keep_history=timedelta(days=30), keep_lines=timedelta(days=60))
        await one.sweep()
        await one.sweep()
        assert len(one.lines()) == 10

"""The importer copies each ledger line exactly once, whatever is lost or repeated on the way."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import pairwise

import pytest
import sqlalchemy as sa
from msgspec import structs

from gateway.billing.usage import ImageCount, Usage
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.tables import ROLLUPS, import_state, ledger_lines, usage_daily, usage_hourly, usage_site_daily
from gateway.errors import DatabaseUnavailable
from gateway.history import importer, service
from gateway.history.appending import append
from gateway.history.import_state import ImportConflict
from gateway.history.new_lines import read_new_lines
from gateway.ledger.import_hints import TOUCHED
from tests.ledger.records import record_of, settle
from tests.ledger.shards import without
from tests.ledger.test_archive import aged, busy
from tests.polling import until


async def test_lines_of_a_hinted_account_are_copied_with_their_chain_of_hashes(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        await one.all("acme")
        await one.same()
        await settle(w.ledger, await w.admit(key), 7)
        await one.all("acme")
        await one.same()
        assert one.count("gateway_importer_lines") == 11


async def test_account_with_many_lines_is_read_in_pages(world, importing, monkeypatch) -> None:
    monkeypatch.setattr(importer, "MAX_PAGE", 4)
    monkeypatch.setattr(importer, "MIN_PAGE", 2)
    async with world() as w:
        await busy(w, 20)
        await busy(w, 9, account="other")
        one = importing(w)
        await one.all("acme", "other", "unknown")
        await one.same("acme")
        await one.same("other")
        assert one.totals() == (210 + 45,) * 3


@pytest.mark.holds("operations/history.md#history-2")
@pytest.mark.parametrize("is_behind", [False, True])
async def test_importer_rests_between_small_transactions_unless_it_is_behind(
    world, importing, monkeypatch, is_behind
) -> None:
    monkeypatch.setattr(importer, "MIN_PAGE", 2)
    monkeypatch.setattr(service, "SMALL", small := importer.Portion(accounts=1, lines=8, at_once=8))
    if is_behind:
        monkeypatch.setattr(service, "HURRY", -1.0)
    steps: list[tuple[importer.Portion, float, float]] = []
    step = importer.Importer.step

    async def timed(self: importer.Importer, portion: importer.Portion) -> int:
        began = time.monotonic()
        imported = await step(self, portion)
        steps.append((portion, began, time.monotonic()))
        return imported

    monkeypatch.setattr(importer.Importer, "step", timed)
    async with world() as w:
        await busy(w, 20)
        one = importing(w)
        await one.all("acme")
        await one.same()
    if is_behind:
        assert [portion for portion, *_ in steps] == [importer.LARGE]
        return
    assert [portion for portion, *_ in steps] == [small] * 3  # 20 calls, and the line that opened the account
    for (_, began, ended), (_, next_began, _) in pairwise(steps):
        assert next_began - ended >= min((ended - began) * service.REST, service.LONGEST_REST) * 0.99


@pytest.mark.holds("operations/history.md#history-2")
async def test_sweep_finds_lines_whose_hint_was_lost(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        await one.sweep()
        await one.same()
        await settle(w.ledger, await w.admit(key), 7)
        await w.store.client.delete(TOUCHED)
        await one.round()
        assert len(one.lines()) == 10
        await one.sweep()
        await one.same()


@pytest.mark.holds("operations/history.md#history-1")
async def test_lines_are_imported_once_by_two_importers_at_a_time(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        first, second = importing(w), importing(w)
        for n in range(5):
            await settle(w.ledger, await w.admit(key), n)
            await first.hint("acme")
            await asyncio.gather(first.round(), second.round())
        await first.sweep()
        assert len(first.lines()) == len(await first.in_store())
        await first.same()


async def test_remembered_state_is_read_again_when_it_is_older_than_that_of_the_database(world, importing) -> None:
    async with world() as w:
        key = await busy(w)
        first, second = importing(w), importing(w)
        await first.all("acme")
        for cost in (20, 30):
            await settle(w.ledger, await w.admit(key), cost)
        await second.all("acme")
        await settle(w.ledger, await w.admit(key), 40)
        await first.all("acme")  # its state is two lines behind: the compare-and-set fails
        await first.same()
        assert first.totals() == (45 + 90,) * 3


async def test_remembered_state_whose_line_has_left_the_store_blocks_nothing(world, importing, database) -> None:
    async with world() as w:
        key = await busy(w)
        await aged(w, hours=49)
        early = append(database, [await read_new_lines(w.store, "acme", None, most=4, page=4)])
        first, second = importing(w, keep_lines=timedelta(days=30)), importing(w)
        await first.round()
        first.service._opened.importer._remember(early)
        for _ in range(2):
            await second.sweep()
        assert await w.store.client.xlen("{a:acme}:lg") == 0
        await settle(w.ledger, await w.admit(key), 60)
        await first.all("acme")
        assert [-line.amount for line in first.lines()][-3:] == [8, 9, 60]
        assert ("gateway_importer_blocked", ()) not in first.metrics._gauges
        assert first.totals() == (45 + 60,) * 3


async def test_database_that_was_set_back_is_noticed_by_the_sweep(world, importing, database) -> None:
    async with world() as w:
        await busy(w)
        early = await read_new_lines(w.store, "acme", None, most=4, page=4)
        one = importing(w)
        await one.all("acme")
        with database.writing() as connection:
            for table in (ledger_lines, import_state, *ROLLUPS):
                connection.execute(table.delete())
        append(database, [early])
        assert len(one.lines()) < 10
        await one.sweep()
        await one.same()


async def test_key_that_is_given_to_a_user_keeps_one_row_of_sums(world, importing) -> None:
    async with world() as w:
        service = await w.caller()
        for user in ("", "usr_ann"):
            await settle(w.ledger, await w.admit(structs.replace(service, user=user)), 100)
        one = importing(w)
        await one.all("acme")
        assert [row["cost"] for row in one.sums(usage_daily)] == [200]
        assert [row["calls"] for row in one.sums(usage_hourly)] == [2]


async def test_second_writer_of_the_same_lines_is_refused(world, importing, database) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)
        new = await read_new_lines(w.store, "acme", None, most=100)
        assert [state.last_seq for state in append(database, [new])] == [10]
        with pytest.raises(ImportConflict):
            append(database, [new])
        await one.same()
        assert one.totals() == (45, 45, 45)


async def test_batch_with_a_conflict_writes_nothing(world, importing, database) -> None:
    async with world() as w:
        await busy(w)
        await busy(w, account="other")
        one = importing(w)
        acme, other = [await read_new_lines(w.store, name, None, most=100) for name in ("acme", "other")]
        append(database, [acme])
        with pytest.raises(ImportConflict):
            append(database, [other, acme])
        assert one.state("other") is None
        assert one.lines("other") == []


@pytest.mark.holds("operations/history.md#history-16")
async def test_calls_are_summed_by_hour_day_and_site(world, importing) -> None:
    usage = Usage(in_text=10, in_cached=3, out_text=5, images=ImageCount(2), audio_seconds_in=1.5)
    async with world() as w:
        key = await w.caller()
        for cost, first in ((100, None), (300, 0.3)):
            record = structs.replace(
                record_of(cost, usage=usage, provider="p", outcome="ok"),
                endpoint="chat",
                duration=2.0,
                first_token=first,
            )
            w.ledger.book(await w.admit(key), record)
        await w.ledger.drain()
        one = importing(w)
        await one.all("acme")
        expected = {
            "account": "acme",
            "key_id": key.id,
            "model": "m",
            "provider": "p",
            "endpoint": "chat",
            "outcome": "ok",
            "calls": 2,
            "cost": 400,
            "in_text": 20,
            "in_cached": 6,
            "out_text": 10,
            "images": 4,
            "audio_ms_in": 3000,
            "duration_ms": 4000,
            "duration_to_2048": 2,
            "duration_max_ms": 2000,
            "streams": 1,
            "first_token_ms": 300,
            "first_token_to_362": 1,
            "first_token_max_ms": 300,
        }
        (line, _) = one.lines()[1:]
        hour = line.milliseconds * 1000 // 3_600_000_000 * 3_600_000_000
        assert one.sums() == [{"hour": hour, **expected}]
        day = hour // 86_400_000_000 * 86_400_000_000
        assert one.sums(usage_daily) == [{"day": day, **expected}]
        site = {name: value for name, value in expected.items() if name not in ("account", "key_id")}
        assert one.sums(usage_site_daily) == [{"day": day, **site}]


@pytest.mark.holds("operations/history.md#history-16")
async def test_upstream_cost_is_summed_for_the_calls_where_it_is_known(world, importing) -> None:
    async with world() as w:
        key = await w.caller()
        for upstream_cost in (70, None, 0):
            record = structs.replace(record_of(100), upstream_cost=upstream_cost)
            hold = await w.admit(key)
            w.ledger.book(hold, record)
        await w.ledger.drain()
        await w.ledger.refund("acme", hold.request_id, 40)
        one = importing(w)
        await one.all("acme")
        with one.database.reading() as connection:
            found = list(connection.scalars(sa.select(ledger_lines.c.upstream_cost).order_by(ledger_lines.c.seq)))
        assert found[1:4] == [70, None, 0]
        for table in (usage_hourly, usage_daily, usage_site_daily):
            (row,) = [row for row in one.sums(table) if row.get("calls")]
            assert (row["calls"], row["upstream_cost"], row["upstream_cost_known"]) == (3, 70, 2)
            assert sum(row.get("upstream_cost_known", 0) for row in one.sums(table)) == 2
        await one.same()


@pytest.mark.holds("operations/history.md#history-16")
async def test_reclaimed_call_that_is_amended_later_counts_once(world, importing) -> None:
    async with world() as w:
        key = await w.caller()
        hold = await w.admit(key)
        hold.used = 40
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim("acme")
        one = importing(w)
        await one.all("acme")
        w.ledger.book(hold, record_of(100, outcome="ok"))
        await w.ledger.drain()
        await one.all("acme")
        assert [line.kind for line in one.lines()] == ["open", "reclaim", "adj"]
        assert (one.totals("calls"), one.totals("cost")) == ((1, 1, 1), (100, 100, 100))


async def test_credits_are_lines_but_no_usage(world, importing) -> None:
    async with world() as w:
        await w.caller()
        await w.ledger.credit("acme", 500, operation="gift")
        one = importing(w)
        await one.all("acme")
        assert [line.request_id for line in one.lines()][-1] == "gift"
        assert one.sums() == []


@pytest.mark.holds("operations/history.md#history-7")
async def test_account_whose_ledger_does_not_add_up_is_blocked_and_the_others_go_on(world, importing) -> None:
    async with world() as w:
        await busy(w)
        await busy(w, account="other")
        third = (await w.store.client.xrange("{a:acme}:lg"))[2][0]
        await w.store.client.xdel("{a:acme}:lg", third)
        one = importing(w)
        await one.all("acme", "other")
        assert one.lines() == []
        await one.same("other")
        assert one.metrics._gauges["gateway_importer_blocked", ()] == 1.0


async def test_account_whose_server_is_away_does_not_delay_the_others(world, importing) -> None:
    async with world() as w:
        await busy(w)
        await busy(w, account="other")
        torn = importing(w, links=without(w.store, "acme"))
        await torn.all("acme", "other")
        await torn.sweep()
        await torn.same("other")
        assert torn.lines("acme") == []
        whole = importing(w)
        await whole.sweep()
        await whole.same("acme")


async def test_line_that_the_database_cannot_hold_blocks_its_account_alone(world, importing, database) -> None:
    async with world() as w:
        await busy(w)
        await busy(w, account="other")
        meta = b'{"key":"k","model":"m","duration_ms":36893488147419103232}'
        fields = {"n": 11, "rid": "x", "kind": "use", "amount": 0, "bal": 10**10 - 45, "meta": meta}
        await w.store.client.xadd("{a:acme}:lg", fields)
        await w.store.client.hset("{a:acme}", "seq", 11)
        one = importing(w)
        await one.all("acme", "other")
        assert one.lines() == []
        await one.same("other")


@pytest.mark.holds("operations/history.md#history-4")
async def test_nothing_is_lost_while_the_disk_of_the_database_is_full(world, importing, database, caplog) -> None:
    if database.address.file is None:
        pytest.skip("the size of an SQLite file can be limited")
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        await one.all("acme")
        limit_pages(database, 1)
        for n in range(200):
            await settle(w.ledger, await w.admit(key), n)
        await one.hint("acme")
        assert await one.service.attempt() > 0
        assert await one.service.attempt() > 0
        one.service.note_lag()
        assert one.count("gateway_importer_failures", "database") == 2
        assert one.metrics._gauges["gateway_database_up", ()] == 0
        assert one.metrics._gauges["gateway_importer_lag_seconds", ()] > 0
        assert [record.message for record in caplog.records if "disk is full" in record.message]
        assert len(one.lines()) == 10
        limit_pages(database, 2**30)
        await one.round()
        await one.same()
        one.service.note_lag()
        assert one.metrics._gauges["gateway_importer_lag_seconds", ()] == 0
        assert one.metrics._gauges["gateway_database_up", ()] == 1


def limit_pages(database: Database, pages: int) -> None:
    """Let the file be full, or not: SQLite keeps at least its present size. For all connections of the pool."""
    database.engine.dispose()

    def limit(connection, record) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(database.engine, "connect", limit)


async def test_database_that_is_away_delays_the_import_only(world, importing, database, monkeypatch) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)

        def away(*_):
            raise DatabaseUnavailable(detail="connection refused")

        with monkeypatch.context() as patch:
            patch.setattr(importer, "append", away)
            await one.hint("acme")
            assert await one.service.attempt() > 0
        assert one.lines() == []
        await one.round()
        await one.same()


@pytest.mark.holds("operations/history.md#history-5")
async def test_another_database_does_not_import(world, importing, tmp_path, caplog) -> None:
    other = Database.open(DatabaseAddress(file=tmp_path / "other.db"))
    async with world() as w:
        await busy(w)
        await importing(w).all("acme")
        second = importing(w, database=other)
        await second.all("acme")
        assert second.lines() == []
        assert second.count("gateway_importer_failures", "refused") == 1
        assert "The store's history is in another database" in caplog.text
    other.close()


@pytest.mark.holds("operations/history.md#history-5")
async def test_emptied_store_is_not_taken_for_a_new_one(world, importing) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)
        await one.all("acme")
        before = one.lines()
        await w.store.client.flushall()
        await busy(w)
        again = importing(w)
        await again.all("acme")
        assert again.lines() == before
        assert again.count("gateway_importer_failures", "refused") == 1


async def test_accounts_in_lines_are_found_by_number_request_and_time(world, importing, database) -> None:
    async with world() as w:
        await busy(w)
        one = importing(w)
        await one.all("acme")
        line = one.lines()[4]
        with database.reading() as connection:
            found = connection.execute(
                sa.select(ledger_lines).where(ledger_lines.c.request_id == line.request_id)
            ).one()
        assert (found.seq, found.at, found.provider) == (line.n, line.milliseconds * 1000, "p")


async def test_removed_file_is_noticed_before_anything_is_written_to_it(world, importing, database_address) -> None:
    if database_address.file is None:
        pytest.skip("a server has no file")
    async with world() as w:
        key = await busy(w)
        one = importing(w)
        one.service._open = lambda: Database.open(database_address)
        await one.all("acme")
        database_address.file.unlink()
        for name in ("-wal", "-shm"):
            database_address.file.with_name(database_address.file.name + name).unlink(missing_ok=True)
        await settle(w.ledger, await w.admit(key), 7)
        await one.hint("acme")
        for _ in range(3):
            assert await one.service.attempt() > 1
        assert one.count("gateway_importer_failures", "refused") == 3
        await one.service.close()
        assert await w.store.client.xlen("{a:acme}:lg") == 11


async def test_busy_importer_leaves_its_lock_free_now_and_then(world, importing, monkeypatch) -> None:
    """A command looks for the lock every 50 ms, and a busy importer would take it again within one."""
    monkeypatch.setattr(service, "HINTS", 1)  # one account in a round
    monkeypatch.setattr(service, "ROUND", 0.01)
    monkeypatch.setattr(service, "FREE", 3600.0)
    async with world() as w:
        one, stop = importing(w), asyncio.Event()
        await one.hint("a", "b", "c")
        made = time.monotonic()
        await until(lambda: time.monotonic() - made > service.ROUND)  # else a second round may follow the first at once
        running = asyncio.create_task(one.service.run(stop))
        lock = one.database.lock("importer")

        async def two_are_left() -> bool:
            return bool(await w.store.client.scard(TOUCHED) == 2)

        await until(two_are_left)
        await until(lock.take)
        assert await two_are_left()
        lock.release()
        stop.set()
        await running

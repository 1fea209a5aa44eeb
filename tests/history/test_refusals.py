"""Refused requests reach the database once; users and tags of calls are in the lines and sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from msgspec import structs

from gateway.database.tables import ledger_lines, refusals_hourly, refusals_site_hourly, usage_daily, usage_daily_tags
from gateway.history import refusals
from gateway.history.refusals import RefusalQuery, add_batches, count_refusals, read_refusals, site_refusals
from gateway.history.rollups import rebuild_rollups
from gateway.ledger.refusal_counts import HOUR, STREAM, RefusalBatch, RefusalCounts
from tests.ledger.records import record_of
from tests.ledger.test_archive import busy

HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)


class Killed(Exception):
    """The importer is killed here."""


async def refused(w, times: int = 1, key: str = "key_x") -> None:
    counts = RefusalCounts(w.store)
    for _ in range(times):
        counts.count("acme", key, "m", "rate_limit_exceeded")
    await counts.send()


@pytest.mark.holds("operations/history.md#refused-requests-1")
async def test_batches_are_summed_and_leave_the_store(world, importing, database) -> None:
    async with world() as w:
        await refused(w, 2)
        await refused(w, 3)
        await refused(w, 1, "key_y")
        one = importing(w)
        await one.round()
        assert await w.store.client.xlen(STREAM) == 0
        found = read_refusals(database, RefusalQuery(account="acme", since=HOUR_AGO))
        assert [(one.key, one.model, one.code, one.requests) for one in found] == [
            ("key_x", "m", "rate_limit_exceeded", 5),
            ("key_y", "m", "rate_limit_exceeded", 1),
        ]
        of_one_key = RefusalQuery(keys=["key_y", "key_z"], since=HOUR_AGO)
        assert [one.requests for one in read_refusals(database, of_one_key)] == [1]
        for nobodys in (
            RefusalQuery(since=datetime.now(UTC) + timedelta(hours=1)),
            RefusalQuery(account="other", since=HOUR_AGO),
            RefusalQuery(keys=[], since=HOUR_AGO),
        ):
            assert read_refusals(database, nobodys) == []
            assert count_refusals(database, nobodys) == 0


def test_refusals_of_the_site_are_summed_by_code_whatever_the_number_of_accounts(database) -> None:
    hour = int(HOUR_AGO.timestamp()) // HOUR
    counts = [
        (hour, f"acc-{n}", "k", "m", "insufficient_quota" if n % 3 else "rate_limit_exceeded", 2) for n in range(9)
    ]
    batches = [RefusalBatch("b1", counts), RefusalBatch("b2", counts[:1])]
    add_batches(database, batches)
    add_batches(database, batches)  # they come again
    with database.reading() as connection:
        found = site_refusals(connection, RefusalQuery(since=HOUR_AGO, until=datetime.now(UTC)))
        assert found == {"insufficient_quota": 12, "rate_limit_exceeded": 8}
        assert site_refusals(connection, RefusalQuery(since=HOUR_AGO + timedelta(hours=3))) == {}
        assert connection.scalar(sa.select(sa.func.count()).select_from(refusals_site_hourly)) == 2


def test_count_of_refusals_has_no_limit_of_groups(database) -> None:
    hour = int(HOUR_AGO.timestamp()) // HOUR
    add_batches(database, [RefusalBatch("b1", [(hour, "acme", f"key_{n}", "m", "c", 2) for n in range(30)])])
    query = RefusalQuery(since=HOUR_AGO)
    assert count_refusals(database, query) == 60
    assert len(read_refusals(database, query, most=10)) == 10


@pytest.mark.holds("operations/history.md#refused-requests-1")
def test_refusals_of_a_range_are_those_of_its_hours_and_of_one_model(database) -> None:
    noon = datetime(2026, 3, 5, 12, tzinfo=UTC)
    hour = int(noon.timestamp()) // HOUR
    add_batches(
        database, [RefusalBatch("b1", [(hour + n, "acme", "key_x", f"m{n % 2}", "c", 10**n) for n in range(4)])]
    )

    def requests(since: float, until: float | None, model: str = "") -> int:
        """Of hours after noon."""
        end = None if until is None else noon + timedelta(hours=until)
        return count_refusals(database, RefusalQuery(since=noon + timedelta(hours=since), until=end, model=model))

    assert requests(0, None) == 1111
    assert requests(0, 1) == 1  # the end is not included
    assert requests(0, 1.01) == 11 and requests(0.99, 1) == 1  # an hour that is cut counts whole
    assert requests(1, 3) == 110 and requests(-9, 0) == 0
    assert requests(0, 4, model="m1") == 1010 and requests(0, 2, model="m1") == 10


@pytest.mark.holds("operations/history.md#refused-requests-1")
async def test_batch_that_comes_again_adds_nothing(world, importing, database, monkeypatch) -> None:
    async with world() as w:
        await refused(w, 2)
        [(_, fields)] = await w.store.client.xrange(STREAM)

        async def killed(*args) -> None:
            raise Killed

        monkeypatch.setattr(refusals, "remove_batches", killed)
        one = importing(w)
        with pytest.raises(Killed):
            await one.round()
        monkeypatch.undo()
        assert await w.store.client.xlen(STREAM) == 1
        second = importing(w)
        await second.round()
        await w.store.client.xadd(STREAM, fields)  # a worker sent it twice
        await w.store.client.xadd(STREAM, {"b": "unreadable"})
        await importing(w).round()
        assert await w.store.client.xlen(STREAM) == 0
        with database.reading() as connection:
            assert connection.scalar(sa.select(sa.func.sum(refusals_hourly.c.requests))) == 2


@pytest.mark.holds("operations/history.md#history-15", "people.md#keys-of-users-2")
async def test_users_and_tags_are_in_lines_and_sums(world, importing, database) -> None:
    async with world() as w:
        key = await w.caller(user="usr_ann")
        service = await w.caller()
        for caller, tags in ((key, {"team": "search", "env": "prod"}), (key, None), (service, {"team": "search"})):
            w.ledger.book(await w.admit(caller), structs.replace(record_of(100), tags=tags))
        await w.ledger.drain()
        one = importing(w)
        await one.all("acme")
        with database.reading() as connection:
            rows = connection.execute(sa.select(ledger_lines).order_by(ledger_lines.c.seq)).all()
        assert [(row.user_id, row.tags) for row in rows] == [
            ("", ""),
            ("usr_ann", '{"team":"search","env":"prod"}'),
            ("usr_ann", ""),
            ("", '{"team":"search"}'),
        ]
        assert sorted((row.get("user_id", ""), row["cost"]) for row in one.sums(usage_daily)) == [
            ("", 100),
            ("usr_ann", 200),
        ]
        sums = one.sums(usage_daily_tags)
        by_tag = sorted((row["tag"], row["value"], row["key_id"] == key.id, row["calls"], row["cost"]) for row in sums)
        assert by_tag == [
            ("env", "prod", True, 1, 100),
            ("team", "search", False, 1, 100),
            ("team", "search", True, 1, 100),
        ]
        assert rebuild_rollups(database) == 4
        assert one.sums(usage_daily_tags) == sums
        await one.same()


@pytest.mark.holds("operations/history.md#history-15")
async def test_refund_lowers_the_sums_by_tag(world, importing, database) -> None:
    async with world() as w:
        key = await busy(w, 3)
        hold = await w.admit(key)
        w.ledger.book(hold, structs.replace(record_of(100), tags={"team": "search"}))
        await w.ledger.drain()
        await w.ledger.refund("acme", hold.request_id, 30)
        one = importing(w)
        await one.all("acme")
        assert [(row["calls"], row["cost"]) for row in one.sums(usage_daily_tags)] == [(1, 70)]

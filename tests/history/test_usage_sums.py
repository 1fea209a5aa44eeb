"""Sums of usage are right for any range and grouping, whichever rollups they are read from."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from gateway.billing.usage import Usage
from gateway.database.engine import Database
from gateway.database.tables import usage_daily, usage_hourly, usage_monthly, usage_site_daily, usage_site_hourly
from gateway.errors import InvalidValue
from gateway.history import usage_sums
from gateway.history.calendar import DAY, HOUR, month_of, next_month
from gateway.history.histogram import Times, durations
from gateway.history.largest_usage import read_largest
from gateway.history.usage_sums import PERIODS, UsageQuery, read_usage
from tests.history.made_lines import Account

START = datetime(2026, 1, 28, tzinfo=UTC)
FIRST = int(START.timestamp()) * 1_000_000
DAYS = 95
DIMENSIONS = ("account", "user", "key", "model", "provider", "endpoint", "outcome")


@pytest.fixture
def truth(database: Database) -> list[tuple[int, dict[str, str], int]]:
    """Calls over more than three months: hour, labels and cost of each."""
    chosen, calls = random.Random(7), []
    for name in ("acme", "beta"):
        account = Account(database, name)
        for at in sorted(chosen.uniform(0, DAYS * 24) for _ in range(300)):
            labels = {"key": chosen.choice(("key_1", "key_2")), "model": chosen.choice("mn"), "provider": "p"}
            labels |= {"user": {"key_1": "usr_1", "key_2": ""}[labels["key"]]}
            labels |= {"endpoint": "chat", "outcome": chosen.choice(("ok", "upstream_error"))}
            cost = chosen.randrange(1000)
            moment = START + timedelta(hours=at)
            account.call(moment.replace(tzinfo=None).isoformat(), cost, usage=Usage(in_text=cost), **labels)
            calls.append((FIRST + int(at) * HOUR, {"account": name, **labels}, cost))
        account.flush()
    return calls


@pytest.mark.holds("operations/history.md#history-14", "operations/history.md#reports-and-statements-1")
def test_any_range_and_grouping_adds_up(database: Database, truth: list[tuple[int, dict[str, str], int]]) -> None:
    chosen = random.Random(8)
    start_of = {"hour": lambda at: at, "day": lambda at: at // DAY * DAY, "month": month_of}
    with database.reading() as connection:
        for _ in range(60):
            since, until = sorted(FIRST + chosen.randrange(-30, (DAYS + 2) * 24) * HOUR for _ in range(2))
            if chosen.random() < 0.5:
                since, until = since // DAY * DAY, next_month(month_of(until))
            dimensions = tuple(chosen.sample(DIMENSIONS, chosen.randrange(4)))
            period = chosen.choice((None, *PERIODS))
            filters = {"account": ["beta"]} if chosen.random() < 0.3 else {}
            query = UsageQuery(since=since, until=until, dimensions=dimensions, period=period, filters=filters)
            costs: Counter[Any] = Counter()
            counts: Counter[Any] = Counter()
            for at, labels, cost in truth:
                if since <= at < until and all(labels[name] in values for name, values in filters.items()):
                    key = (start_of[period](at) if period else 0, *(labels[name] for name in dimensions))
                    costs[key] += cost
                    counts[key] += 1
            found = {(row.period, *row.labels): row.sums for row in read_usage(connection, query)}
            assert {key: sums["calls"] for key, sums in found.items()} == counts, query
            assert {key: sums["cost"] for key, sums in found.items()} == dict.fromkeys(counts, 0) | costs, query
            assert {key: sums["in_text"] for key, sums in found.items()} == dict.fromkeys(counts, 0) | costs, query


@pytest.mark.holds("operations/history.md#reports-and-statements-1")
def test_whole_months_and_days_are_read_from_the_smaller_rollups() -> None:
    since, until = month_of(FIRST), next_month(next_month(month_of(FIRST))) + DAY + HOUR
    by_account = UsageQuery(since=since, until=until, dimensions=("account",))
    assert [segment.table for segment in usage_sums.segments_of(by_account)] == [
        usage_monthly,
        usage_daily,
        usage_hourly,
    ]
    by_model = UsageQuery(since=since, until=until - HOUR, dimensions=("model",), period="day")
    assert {segment.table for segment in usage_sums.segments_of(by_model)} == {usage_site_daily}
    by_hour = UsageQuery(since=since, until=until, dimensions=("model",), period="hour")
    assert {segment.table for segment in usage_sums.segments_of(by_hour)} == {usage_site_hourly}


def test_report_with_too_many_rows_is_refused(database: Database, truth: object, monkeypatch) -> None:
    monkeypatch.setattr(usage_sums, "MOST_ROWS", 10)
    query = UsageQuery(since=FIRST, until=FIRST + DAYS * DAY, period="hour")
    with database.reading() as connection:
        with pytest.raises(InvalidValue, match="more than 10 rows"):
            read_usage(connection, query)
        with pytest.raises(InvalidValue, match="more than 3 rows"):
            read_usage(connection, structs.replace(query, most=3))


def test_largest_groups_and_the_others_are_the_whole(database: Database, truth: object) -> None:
    since, until = FIRST + 3 * HOUR, FIRST + DAYS * DAY - 5 * HOUR
    for dimensions in (("account",), ("model",), ("account", "model"), ("key", "model", "account")):
        query = UsageQuery(since=since, until=until, dimensions=dimensions)
        with database.reading() as connection:
            rows = sorted(read_usage(connection, query), key=lambda row: (-row.sums["cost"], row.labels))
            for most in (1, 2, len(rows) + 1):
                found = read_largest(connection, query, most)
                assert found.rows == rows[:most]
                for name in ("calls", "cost", "in_text", "errors"):
                    assert found.others[name] == sum(row.sums[name] for row in rows[most:]), (dimensions, most, name)


def test_percentiles_are_interpolated_within_their_cells(database: Database) -> None:
    account = Account(database)
    for milliseconds in (50, 50, 300, 90_000):
        account.call("2026-10-01T05:00", 1, duration_ms=milliseconds)
    account.flush()
    since = month_of(FIRST + 260 * DAY)
    with database.reading() as connection:
        (row,) = read_usage(connection, UsageQuery(since=since, until=next_month(since)))
    times = durations(row.sums)
    assert times is not None
    assert (times.mean, times.p50, times.p95, times.p99) == (22_600, 64, 90_000, 90_000)


def times_of(database: Database) -> Times:
    since = month_of(FIRST + 260 * DAY)
    with database.reading() as connection:
        (row,) = read_usage(connection, UsageQuery(since=since - 40 * DAY, until=next_month(since)))
    times = durations(row.sums)
    assert times is not None
    return times


def test_percentiles_of_short_calls_are_not_above_the_longest_one(database: Database) -> None:
    account = Account(database)
    for milliseconds in (7, 7, 7, 6, 7, 8, 7, 7):
        account.call("2026-10-01T05:00", 1, duration_ms=milliseconds, first_token_ms=2)
    account.flush()
    times = times_of(database)
    assert (times.mean, times.p50, times.p95, times.p99) == (7, 7, 8, 8)


def test_percentiles_are_as_near_as_the_cells_are_wide_over_any_rollups(database: Database) -> None:
    chosen, account = random.Random(3), Account(database)
    spent = sorted(round(chosen.lognormvariate(5, 2)) for _ in range(500))
    for milliseconds in chosen.sample(spent, len(spent)):
        account.call("2026-09-30T23:00", 1, duration_ms=milliseconds)
    account.call("2026-10-01T01:00", 1, duration_ms=3)
    account.flush()
    times = times_of(database)
    assert times.p50 <= times.p95 <= times.p99 <= spent[-1]
    for share, found in ((0.5, times.p50), (0.95, times.p95), (0.99, times.p99)):
        true = spent[round(len(spent) * share) - 1]
        assert true / 1.5 <= found <= true * 1.5, share


def test_times_of_rows_of_older_versions_are_read_with_those_of_this_one(database: Database) -> None:
    account = Account(database)
    account.call("2026-10-01T05:00", 1, duration_ms=7)
    account.flush()
    with database.writing() as connection:  # as before 0120: 8 calls of 100 to 250 ms, 2 of more than a minute
        old = {"duration_1": 8, "duration_9": 2, "duration_to_8": 0, "duration_max_ms": 0, "calls": 10}
        for table in (usage_hourly, usage_daily, usage_monthly, usage_site_hourly, usage_site_daily):
            connection.execute(table.update().values(**old, duration_ms=140_000))
    times = times_of(database)
    assert (times.mean, times.p50, times.p95, times.p99) == (14_000, 194, 60_000, 60_000)
    for _ in range(30):
        account.call("2026-10-01T05:00", 1, duration_ms=7)
    account.flush()
    times = times_of(database)
    assert (times.p50, times.p95, times.p99) == (7, 250, 60_000)


def test_sums_by_tag_have_each_call_once_for_each_of_its_tags(database: Database) -> None:
    account = Account(database)
    account.call("2026-09-30T23:00", 1, tags={"team": "search"})
    account.call("2026-10-01T05:00", 2, tags={"team": "search", "env": "prod"}, model="n")
    account.call("2026-10-31T05:00", 4, tags={"team": "ads"})
    account.call("2026-10-31T05:00", 8)
    account.flush()
    since = month_of(FIRST + 260 * DAY)  # October
    range_ = {"since": since - DAY, "until": next_month(since)}

    def sums(**query: Any) -> dict[tuple[Any, ...], int]:
        with database.reading() as connection:
            found = read_usage(connection, UsageQuery(**range_ | query))
        return {(row.period, *row.labels): row.sums["cost"] for row in found}

    assert sums(dimensions=("tag",)) == {(0, "env=prod"): 2, (0, "team=ads"): 4, (0, "team=search"): 3}
    assert sums(dimensions=("tag",), period="month", filters={"tag": ["team"]}) == {
        (since - 30 * DAY, "team=search"): 1,
        (since, "team=ads"): 4,
        (since, "team=search"): 2,
    }
    assert sums(dimensions=("model",), filters={"tag": ["team=search"]}) == {(0, "m"): 1, (0, "n"): 2}

"""Lists of calls are complete and in order for any filters and pages, and filters that few calls pass read few rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.tables import usage_daily
from gateway.history.call_pages import CallFilter, read_calls
from gateway.history.call_search import CallSearch, search_calls
from gateway.history.caller_addresses import keys_used_by
from tests.history.made_lines import Account

START = datetime(2026, 1, 28, tzinfo=UTC)
MINUTES = 5 * 24 * 60
NAMES = ("account", "key", "user", "model", "provider", "outcome", "session")


class Truth(NamedTuple):
    """A call that was made: its place in the order of all lists, and its labels."""

    at: int
    account: str
    seq: int
    labels: dict[str, str]

    @property
    def order(self) -> tuple[int, str, int]:
        return -self.at, self.account, -self.seq


@pytest.fixture
def truth(database: Database) -> list[Truth]:
    """Calls of three accounts over five days, some at one moment, with lines between them that are no calls."""
    chosen, calls = random.Random(11), []
    for name in ("acme", "beta", "gamma"):
        account = Account(database, name)
        for minute in sorted(
            chosen.choice((chosen.randrange(MINUTES), 13 * 60 * chosen.randrange(9))) for _ in range(120)
        ):
            key = chosen.choice("1234")
            labels: dict[str, Any] = {
                "key": f"key_{name}_{key}",
                "user": {"1": "usr_1", "2": f"usr_{name}"}.get(key, ""),
            }
            labels |= {"model": chosen.choice("mmmn"), "provider": chosen.choice("pppq")}
            labels |= {"outcome": chosen.choice(("ok", "ok", "client_closed"))}
            labels |= {"session": chosen.choice(("one", "one", "two", ""))}
            moment = START + timedelta(minutes=minute)
            text = moment.replace(tzinfo=None).isoformat()
            if chosen.random() < 0.1:
                account.line(text, "topup", 5)
            account.call(text, 1, kind=chosen.choice(("use", "use", "reclaim")), **labels)
            at = int(moment.timestamp()) * 1_000_000
            calls.append(Truth(at, name, account.seq, {"account": name, **labels}))
        account.flush()
    return sorted(calls, key=lambda call: call.order)


def questions(truth: list[Truth], count: int) -> list[dict[str, Any]]:
    """Ranges with up to three filters, most of them of a call that there is."""
    chosen, first = random.Random(12), int(START.timestamp()) * 1_000_000
    all_days: dict[str, Any] = {"since": first, "until": first + MINUTES * 60_000_000}
    found = [all_days, all_days | {"user": "usr_1"}, all_days | {"outcome": "client_closed"}]
    for _ in range(count):
        labels = chosen.choice(truth).labels if chosen.random() < 0.9 else dict.fromkeys(NAMES, "nobody")
        filters = {name: labels[name] for name in chosen.sample(NAMES, chosen.randrange(4))}
        since, until = sorted(first + chosen.randrange(-60, MINUTES + 60) * 60_000_000 for _ in range(2))
        found.append({"since": since, "until": until + 1, **filters})
    return found


def expected(truth: list[Truth], question: dict[str, Any]) -> list[tuple[int, str, int]]:
    filters = [(name, question[name]) for name in NAMES if question.get(name)]
    return [
        (call.at, call.account, call.seq)
        for call in truth
        if question["since"] <= call.at < question["until"] and all(call.labels[name] == own for name, own in filters)
    ]


@pytest.mark.holds("operations/history.md#reports-and-statements-2")
@pytest.mark.slow
def test_pages_of_all_accounts_have_each_call_that_passes_the_filters(database: Database, truth: list[Truth]) -> None:
    chosen = random.Random(13)
    with database.reading() as connection:
        for question in questions(truth, 60):
            wanted, limit = expected(truth, question), chosen.choice((2, 7, 500))
            found: list[tuple[int, str, int]] = []
            while page := search_calls(
                connection, CallSearch(**question, before=found[-1] if found else None), limit=limit
            ):
                assert len(page) <= limit
                assert len(found) <= len(wanted)
                found += [one.position for one in page]
            assert found == wanted, question


def test_pages_of_an_account_have_each_of_its_calls_that_passes_the_filters(
    database: Database, truth: list[Truth]
) -> None:
    with database.reading() as connection:
        for question in questions(truth, 40):
            question["account"] = question.get("account", "beta")
            found: list[int] = []
            while page := read_calls(connection, CallFilter(**question, before=found[-1] if found else 0), limit=4):
                found += [call.seq for call in page]
            assert found == [seq for _, _, seq in expected(truth, question)], question


@pytest.mark.holds("operations/history.md#reports-and-statements-2")
@pytest.mark.parametrize(
    ("title", "filters"),
    [
        ("a key", {"key": "key_rare"}),
        ("a user", {"user": "usr_rare"}),
        ("an outcome", {"outcome": "rare"}),
        ("a session", {"session": "rare"}),
        ("nobody's key", {"key": "key_nobody"}),
        ("a small account", {"account": "small"}),
    ],
)
def test_filter_that_few_calls_pass_does_not_read_the_other_days(
    tmp_path: Any, title: str, filters: dict[str, str]
) -> None:
    database = Database.open(DatabaseAddress(file=tmp_path / "gateway.db"))
    small, large = Account(database, "small"), Account(database, "large")
    small.call("2026-01-01T00:30", 1, key="key_small")
    small.flush()
    rare: dict[str, Any] = {"key": "key_rare", "user": "usr_rare", "outcome": "rare", "session": "rare"}
    large.call("2026-01-01T00:30", 1, **rare)

    def work(account: str) -> int:
        """Steps of SQLite for one page, in hundreds."""
        wanted: dict[str, Any] = {"since": 0, "until": 2**60, **filters}
        with database.reading() as connection:
            read: Callable[[], Any] = lambda: search_calls(connection, CallSearch(**wanted), limit=50)  # noqa: E731
            if account:
                wanted["account"] = account
                read = lambda: read_calls(connection, CallFilter(**wanted), limit=50)  # noqa: E731
            return steps(connection.connection.driver_connection, read)

    def days(first: int, last: int) -> None:
        for day in range(first, last):
            for minute in range(0, 24 * 60, 15):
                moment = datetime(2026, 2, 1) + timedelta(days=day, minutes=minute)
                large.call(moment.isoformat(), 1, key=f"key_{minute % 4}", user="usr_1", model="mn"[minute % 2])
        large.flush()

    account = "" if "account" in filters else "large"
    days(0, 8)
    before = [work(""), work(account)]
    days(8, 32)
    after = [work(""), work(account)]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 60, (title, before, after)
    database.close()


def test_keys_of_a_user_are_read_from_the_rows_of_the_user(tmp_path: Path) -> None:
    database = Database.open(DatabaseAddress(file=tmp_path / "gateway.db"))
    account = Account(database)
    account.call("2026-10-05T10:30", 1, key="key_ann", user="usr_ann")
    account.flush()
    with database.writing() as connection:
        [row] = connection.execute(sa.select(usage_daily)).mappings()
        others = [{**row, "key_id": f"key_{number}", "user_id": ""} for number in range(5_000)]
        connection.execute(usage_daily.insert(), others)
        connection.exec_driver_sql("ANALYZE")
    with database.reading() as connection:
        driver = connection.connection.driver_connection
        assert keys_used_by(connection, "usr_ann") == ["key_ann"]
        assert steps(driver, lambda: keys_used_by(connection, "usr_ann")) < 5
    database.close()


def steps(connection: Any, run: Callable[[], Any]) -> int:
    """How many hundreds of instructions of SQLite's machine a reading takes."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(step, 100)
    try:
        run()
    finally:
        connection.set_progress_handler(None, 0)
    return count

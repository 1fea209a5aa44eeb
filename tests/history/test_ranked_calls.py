"""Calls by cost and duration: each that passes, once and in order, and a search that costs no more as lines grow."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.history import ranked_calls as module
from gateway.history.call_search import CallSearch, FoundCall
from gateway.history.ranked_calls import ranked_calls
from tests.history.made_lines import Account
from tests.history.test_call_search import steps

START = datetime(2026, 1, 28, tzinfo=UTC)
FIRST = int(START.timestamp()) * 1_000_000
HOURS = 24
ALL: dict[str, Any] = {"since": FIRST, "until": FIRST + HOURS * 3_600_000_000}


@pytest.fixture
def calls(database: Database) -> list[dict[str, Any]]:
    """Calls of three accounts, with lines between them that are no calls; many cost the same."""
    chosen, made = random.Random(21), list[dict[str, Any]]()
    for name in ("acme", "beta", "gamma"):
        account = Account(database, name)
        for minute in sorted(chosen.randrange(HOURS * 60) for _ in range(50)):
            cost, duration = chosen.choice((0, 5, 5, chosen.randrange(900))), chosen.choice((0, chosen.randrange(9000)))
            user = chosen.choice(("usr_1", f"usr_{name}", ""))  # of the key
            labels: dict[str, Any] = {"model": chosen.choice("mmmn"), "user": user, "key": f"key_{name}{user}"}
            moment = START + timedelta(minutes=minute)
            text = moment.replace(tzinfo=None).isoformat()
            if chosen.random() < 0.2:
                account.line(text, "topup", 5)
            account.call(text, cost, duration_ms=duration, **labels)
            at = int(moment.timestamp()) * 1_000_000
            made.append({"at": at, "account": name, "seq": account.seq, "cost": cost, "duration": duration, **labels})
        account.flush()
    return made


def expected(calls: list[dict[str, Any]], question: dict[str, Any]) -> list[tuple[int, str, int]]:
    found = [
        call
        for call in calls
        if question["since"] <= call["at"] < question["until"]
        and call["cost"] >= question.get("least_cost", 0)
        and call["duration"] >= question.get("least_duration", 0)
        and all(call[name] == question[name] for name in ("account", "key", "user", "model") if question.get(name))
    ]
    order = question.get("order", "")
    found.sort(key=lambda call: (-call[order] if order else 0, -call["at"], call["account"], -call["seq"]))
    return [(call["at"], call["account"], call["seq"]) for call in found]


def pages(connection: Any, question: dict[str, Any], limit: int) -> list[tuple[int, str, int]]:
    """All pages of all windows, as a reader goes through them."""
    found, until = list[FoundCall](), question["until"]
    while True:
        page, last = list[FoundCall](), None
        while True:
            asked: dict[str, Any] = question | {"until": until}
            if last is not None:
                asked |= {"before": last.position, "passed": last.rank(question.get("order", ""))}
            got = ranked_calls(connection, CallSearch(**asked), limit=limit)
            page += got.calls
            if len(got.calls) < limit:
                break
            last = got.calls[-1]
        found += page
        if got.since <= question["since"]:
            return [call.position for call in found]
        assert got.since < until, "it goes on"
        until = got.since


QUESTIONS = [
    {"order": order, **least, **labels}
    for order in ("", "cost", "duration")
    for least in ({}, {"least_cost": 5}, {"least_duration": 4000})
    for labels in ({}, {"account": "beta"}, {"model": "n"}, {"user": "usr_1"}, {"key": "key_acme", "model": "m"})
    if order or least
]


def test_pages_have_each_call_once_and_in_order(database: Database, calls: list[dict[str, Any]]) -> None:
    with database.reading() as connection:
        for question in QUESTIONS:
            assert pages(connection, {**ALL, **question}, 20) == expected(calls, {**ALL, **question}), question


@pytest.mark.holds("console.md#calls-2")
def test_windows_of_a_bounded_search_have_each_call_once(
    database: Database, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 25)
    monkeypatch.setattr(module, "MOST_RANGES", 3)
    with database.reading() as connection:
        for question in QUESTIONS:
            found = pages(connection, {**ALL, **question}, 7)
            assert sorted(found) == sorted(expected(calls, {**ALL, **question})), question
        for order in ("cost", "duration"):
            got = ranked_calls(connection, CallSearch(**ALL, order=order), limit=100)
            assert ALL["since"] < got.since, "the answer says that older calls were not searched"
            window = expected(calls, {**ALL, "since": got.since, "order": order})
            assert [call.position for call in got.calls] == window


def test_search_in_many_accounts_of_a_user_reads_no_more_lines_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 8)
    for number in range(4):
        account = Account(database, f"account-{number}")
        for minute in range(10):
            moment = START + timedelta(minutes=minute)
            account.call(moment.replace(tzinfo=None).isoformat(), minute, user="usr_1", key="key_1")
        account.flush()
    with database.reading() as connection:
        found = ranked_calls(connection, CallSearch(**ALL, order="cost", user="usr_1"), limit=100)
    assert found.since == FIRST + 8 * 60_000_000 and len(found.calls) == 8


@pytest.mark.holds("console.md#calls-2")
@pytest.mark.parametrize(
    "filters",
    [
        {"order": "cost"},
        {"order": "duration", "account": "large"},
        {"least_cost": 1000},
        {"order": "cost", "model": "n"},
    ],
)
def test_search_does_not_read_more_as_lines_grow(
    tmp_path: Any, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 200)
    database = Database.open(DatabaseAddress(file=tmp_path / "gateway.db"))
    large = Account(database, "large")

    def days(first: int, last: int) -> None:
        for day in range(first, last):
            for minute in range(0, 24 * 60, 15):
                moment = datetime(2026, 2, 1) + timedelta(days=day, minutes=minute)
                large.call(moment.isoformat(), minute % 7, duration_ms=minute % 11, model="mn"[minute % 2])
        large.flush()

    def work() -> int:
        """Steps of SQLite for one page, in hundreds."""
        with database.reading() as connection:
            wanted = CallSearch(since=0, until=2**60, **filters)
            return steps(connection.connection.driver_connection, lambda: ranked_calls(connection, wanted, limit=50))

    days(0, 8)
    before = work()
    days(8, 32)
    after = work()
    assert after - before < 60, (filters, before, after)
    database.close()

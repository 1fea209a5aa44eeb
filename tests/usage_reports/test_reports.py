"""Who may see which sums, how a report looks, and which queries are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gateway.admin.actor import Actor, command_line
from gateway.admin.transactions import Transactions
from gateway.amounts import NANO
from gateway.database.engine import Database
from gateway.errors import Forbidden, InvalidValue
from gateway.history.sql_thread import SqlThread
from gateway.history.usage_sums import Sums
from gateway.reports import usage_report
from gateway.reports.csv_file import csv_text
from gateway.reports.report_table import ReportTable
from gateway.reports.reports import ReportQuery, Reports, restricted
from tests.admin.conftest import OpenServices
from tests.history.made_lines import Account, moment

ROOT = command_line("root")
OWNER = Actor(kind="user", id="usr_1", memberships={"acme": "owner", "other": "member"})
PROGRAM = Actor(kind="token", id="tok_1", scopes=frozenset({"read"}), account="acme")
BLIND = Actor(kind="token", id="tok_2", scopes=frozenset({"keys"}))
NOBODY = Actor(kind="user", id="usr_3")
OCTOBER: dict[str, Any] = {"since": moment("2026-10-01"), "until": moment("2026-11-01")}


@pytest.fixture
def reports(database: Database, sql: SqlThread) -> Reports:
    for name, cost in (("acme", 3 * NANO), ("other", NANO)):
        account = Account(database, name)
        account.call("2026-10-05T10:30", cost, outcome="ok", model="=cmd")
        account.call("2026-10-06T00:00", 7, uncollected=2, outcome="upstream_error", first_token_ms=40)
        account.flush()
    return Reports(Transactions(database, sql))


async def test_report_has_calls_tokens_money_and_times_by_group(reports: Reports) -> None:
    report = await reports.report(ROOT, ReportQuery(**OCTOBER, group_by=["account", "day"]))
    form = report.json_form()
    assert (form["from"], form["to"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    assert [(row["day"], row["account"], row["amount"]) for row in form["rows"]] == [
        ("2026-10-05", "acme", "3"),
        ("2026-10-05", "other", "1"),
        ("2026-10-06", "acme", "0.000000007"),
        ("2026-10-06", "other", "0.000000007"),
    ]
    assert form["total"] == {
        "calls": 4,
        "errors": 2,
        "estimated": 0,
        "tokens_in": 40,
        "tokens_out": 20,
        "usage": {"in_text": 40, "out_text": 20},
        "amount": "4.000000014",
        "uncollected": "0.000000004",
        "duration_ms": {"mean": 300, "p50": 278, "p95": 300, "p99": 300},
        "first_token_ms": {"mean": 40, "p50": 36, "p95": 40, "p99": 40},
    }
    table = ReportTable(report.json_form())
    text = csv_text(table.columns(), table.records())
    assert text.splitlines()[0].startswith(
        "day,account,calls,errors,estimated,tokens_in,tokens_out,in_text,out_text,amount"
    )


@pytest.mark.parametrize("group_by", [[], ["account", "day"], ["tag"]])
async def test_json_text_in_pieces_is_the_document(
    reports: Reports, group_by: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = await reports.report(ROOT, ReportQuery(**OCTOBER, group_by=group_by))
    for rows_at_once in (1, 3, 500):
        monkeypatch.setattr(usage_report, "ROWS_AT_ONCE", rows_at_once)
        assert json.loads(b"".join(report.json_pieces())) == report.json_form()


def test_sums_of_a_row_have_only_the_measures_that_a_call_has() -> None:
    """A report has up to 100,000 rows; a row with all measures takes 3.5 KB."""
    sums = Sums({"calls": 1, "cost": 7})
    assert (sums["cost"], sums["images"], len(sums)) == (7, 0, 2)
    assert not hasattr(sums, "__dict__")


async def test_range_is_extended_to_whole_hours(reports: Reports) -> None:
    query = ReportQuery(
        since=moment("2026-10-05T10:59"), until=moment("2026-10-05T10:59:01"), group_by=["hour", "model"]
    )
    form = (await reports.report(ROOT, query)).json_form()
    assert (form["from"], form["to"]) == ("2026-10-05T10:00:00Z", "2026-10-05T11:00:00Z")
    assert [(row["hour"], row["model"], row["calls"]) for row in form["rows"]] == [("2026-10-05T10:00Z", "=cmd", 2)]


@pytest.mark.parametrize(
    "query",
    [
        {"group_by": ["colour"]},
        {"group_by": ["day", "month"]},
        {"group_by": ["model", "model"]},
        {"filters": {"colour": ["red"]}},
        {"filters": {"model": []}},
        {"until": moment("2026-09-30")},
        {"group_by": ["tag", "outcome"]},
        {"group_by": ["model"], "filters": {"tag": ["team", "env"]}},
        {"filters": {"tag": ["team=search", "env=prod"]}},
    ],
)
async def test_query_that_is_not_possible_is_refused(reports: Reports, query: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        await reports.report(ROOT, ReportQuery(**OCTOBER | query))


async def test_call_with_several_tags_counts_once_where_one_tag_is_asked_for(
    database: Database, sql: SqlThread
) -> None:
    account = Account(database, "acme")
    account.call("2026-10-05", 3 * NANO, tags={"team": "search", "env": "prod"})
    account.call("2026-10-06", NANO, tags={"team": "ads"})
    account.flush()
    reports = Reports(Transactions(database, sql))
    for values, group_by, calls in (
        (["team=search", "team=ads", "team"], ["model"], 2),
        (["team=search", "team=search"], [], 1),
        (["team", "env"], ["tag"], 3),  # the report says which tag
    ):
        report = await reports.report(ROOT, ReportQuery(**OCTOBER, group_by=group_by, filters={"tag": values}))
        assert report.total["calls"] == calls, values


@pytest.mark.parametrize(
    ("actor", "asked", "expected"),
    [
        (ROOT, {}, {}),
        (ROOT, {"account": ["acme"]}, {"account": ["acme"]}),
        (PROGRAM, {}, {"account": ["acme"]}),
        (OWNER, {}, {"account": ["acme"]}),
        (OWNER, {"model": ["m"]}, {"account": ["acme"], "model": ["m"]}),
        (OWNER, {"account": ["other"]}, {"account": ["other"], "user": ["usr_1"]}),  # a member sees their own usage
    ],
)
def test_reader_sees_their_accounts(
    actor: Actor, asked: Mapping[str, Sequence[str]], expected: Mapping[str, Sequence[str]]
) -> None:
    assert restricted(actor, asked) == expected


@pytest.mark.parametrize(
    ("actor", "asked"),
    [
        (PROGRAM, {"account": ["other"]}),
        (PROGRAM, {"account": ["acme", "other"]}),
        (OWNER, {"account": ["third"]}),
        (OWNER, {"account": ["other"], "user": ["usr_2"]}),
        (BLIND, {}),
        (NOBODY, {}),
        (NOBODY, {"account": ["acme"]}),
    ],
)
def test_reader_does_not_see_other_accounts(actor: Actor, asked: Mapping[str, Sequence[str]]) -> None:
    with pytest.raises(Forbidden):
        restricted(actor, asked)


async def test_margin_needs_the_whole_site(reports: Reports) -> None:
    for actor in (OWNER, PROGRAM):
        with pytest.raises(Forbidden):
            await reports.report(actor, ReportQuery(**OCTOBER, margin=True))


@pytest.mark.holds("operations/history.md#reports-and-statements-1")
async def test_margin_is_the_amount_less_the_known_cost(database: Database, sql: SqlThread) -> None:
    account = Account(database)
    account.call("2026-10-05T10:30", 500, upstream_cost=120)
    account.call("2026-10-05T10:31", 30, upstream_cost=40)
    account.call("2026-10-06T10:30", 7)
    account.flush()
    query = ReportQuery(**OCTOBER, group_by=["month"], margin=True)
    report = await Reports(Transactions(database, sql)).report(ROOT, query)
    (row,) = report.json_form()["rows"]
    assert (row["upstream_cost"], row["margin"], row["upstream_cost_known"]) == ("0.00000016", "0.000000377", 2)
    assert {"upstream_cost", "margin", "upstream_cost_known"} < set(ReportTable(report.json_form()).columns())


@pytest.mark.holds("operations/history.md#reports-and-statements-4")
async def test_erased_user_is_an_opaque_id_in_a_report(services: OpenServices) -> None:
    async with services() as s:
        ann, bob = [await s.user(f"{name}@example.com") for name in ("ann", "bob")]
        account = Account(s.database)
        for key, user in (("key_1", ann.id), ("key_2", bob.id), ("key_3", "")):
            account.call("2026-10-05T10:30", 1, key=key, user=user)
        account.flush()
        await s.people.personal_data.erase(ROOT, bob.id)
        query = ReportQuery(**OCTOBER, group_by=["user"])
        report = await Reports(s.people.transactions).report(ROOT, query)
        found = {row["user"]: row["email"] for row in report.json_form()["rows"]}
        assert found == {"": None, ann.id: "ann@example.com", bob.id: None}

"""Usage reports: what each reader sees of them, in groups, with the margin for whoever runs the gateway."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

from gateway.amounts import NANO
from gateway.billing.usage import Usage
from gateway.console import report_rows
from tests.console.client import ROOT, Console
from tests.console.history import ago, history

OWN = "/accounts/acme/reports"
SITE = "/site/reports"


async def furnished(c: Console) -> dict[str, str]:
    """Calls of two accounts; returns ids of users and keys by name."""
    keys = c.services.store.keys
    ann, bob = [await c.user(f"{name}@example.com", acme="member") for name in ("ann", "bob")]
    laptop = (await keys.create("acme", name="laptop", user=ann.id)).id
    theirs = (await keys.create("other", name="their robot")).id
    acme, other = await history(c), await history(c, "other")
    usage: dict[str, Any] = {"usage": Usage(in_text=1_200, out_text=30), "duration_ms": 40, "first_token_ms": 20}
    acme.call(
        ago(hours=2), 2 * NANO, key=laptop, user=ann.id, model="m1", provider="p", tags={"team": "search"}, **usage
    )
    acme.call(ago(hours=1), 7, key=laptop, user=ann.id, model="m2", outcome="upstream_error", uncollected=3)
    acme.call(ago(hours=1), NANO, key="key_gone", user=bob.id, model="m1", outcome="client_closed")
    other.call(ago(hours=1), 4 * NANO, key=theirs, model="m1")
    acme.flush()
    other.flush()
    return {"ann": ann.id, "bob": bob.id, "laptop": laptop, "theirs": theirs}


def rows_of(html: str) -> list[list[str]]:
    """The texts of the rows of the table, without the heading."""
    body = html.partition('<table class="report">')[2].partition("<tbody>")[2].partition("</table>")[0]
    return [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]


@pytest.mark.holds("console.md#reports-1")
async def test_report_has_a_row_for_each_group_with_names_and_a_total(console: Any) -> None:
    async with console() as c:
        await furnished(c)
        owner = await c.as_("owner", acme="owner")
        shown = await owner.get(f"{OWN}?group_by=key&group_by=model&group_by=")
        assert rows_of(shown.html) == [
            ["laptop", "m1", "1", "0", "1,200", "30", "2.00", "0.00", "40 ms", "20 ms"],
            ["key_gone", "m1", "1", "0", "10", "5", "1.00", "0.00", "300 ms", "–"],
            ["laptop", "m2", "1", "1", "10", "5", "0.000000007", "0.000000003", "300 ms", "–"],
            ["Total of 3 rows", "3", "1", "1,220", "40", "3.000000007", "0.000000003", "278 ms", "20 ms"],
        ]
        by_person = rows_of((await owner.get(f"{OWN}?group_by=user&range=30d")).html)
        assert [row[0] for row in by_person] == ["ann@example.com", "bob@example.com", "Total of 2 rows"]
        by_day = rows_of((await owner.get(f"{OWN}?group_by=month&group_by=outcome")).html)
        assert {row[1] for row in by_day[:-1]} == {"ok", "upstream_error", "client_closed"}
        assert [row[0] for row in rows_of((await owner.get(f"{OWN}?group_by=tag")).html)] == [
            "team=search",
            "Total of 1 row",
        ]


@pytest.mark.holds("console.md#reports-2")
async def test_filters_and_dates_choose_the_calls(console: Any) -> None:
    async with console() as c:
        ids = await furnished(c)
        owner, operator = await c.as_("owner", acme="owner"), await c.as_("root", role="operator")
        for query, calls in (
            ("model=m1", "2"),
            ("model=m1, m2", "3"),
            (f"user={ids['bob']}", "1"),
            ("outcome=ok", "1"),
        ):
            assert rows_of((await owner.get(f"{OWN}?{query}")).html)[-1][1] == calls, query
        assert rows_of((await operator.get(f"{SITE}?user=Ann@example.com")).html)[-1][1] == "2"
        assert "There is no user nobody@example.com" in (await operator.get(f"{SITE}?user=nobody@example.com")).text
        empty = await owner.get(f"{OWN}?from=2020-01-01&to=2020-01-31")
        assert "No calls fit in this time" in empty.text and "2020-01-31" in empty.html


@pytest.mark.holds("console.md#reports-1")
@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("group_by=colour", "nothing to group by"),
        ("group_by=day&group_by=month", "at most one of hour, day and month"),
        ("group_by=tag&group_by=outcome", "With tags, group and filter by"),
        ("group_by=key&group_by=model&group_by=day&group_by=outcome", "at most 3"),
        ("from=2026-02-31", "A date is written as"),
    ],
)
async def test_report_that_is_not_possible_says_why_and_keeps_the_form(console: Any, query: str, text: str) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        shown = await owner.get(f"{OWN}?{query}")
        assert text in shown.text and 'name="group_by"' in shown.html
        for ending in ("csv", "json"):
            assert (await owner.ask("GET", f"{OWN}.{ending}?{query}")).status == 400


@pytest.mark.holds("console.md#reports-4")
async def test_member_sees_own_usage_only_and_owner_that_of_the_account(console: Any) -> None:
    async with console() as c:
        ids = await furnished(c)
        people = await c.services.people()
        bob = await c.signed_in(await people.users.show(ROOT, ids["bob"]))
        owner, viewer = await c.as_("owner", acme="owner"), await c.as_("viewer", role="viewer")
        for browser, calls in ((bob, "1"), (owner, "3"), (viewer, "3")):
            for path in (OWN, f"{OWN}?account=other", f"{OWN}?group_by=key"):
                shown = await browser.get(path)
                assert rows_of(shown.html)[-1][1] == calls, path
                assert "their robot" not in shown.text
            assert json.loads((await browser.get(f"{OWN}.json?account=other")).html)["total"]["calls"] == int(calls)
        assert "ann@example.com" not in (await bob.get(OWN)).html and "laptop" not in (await bob.get(OWN)).html
        for ending in ("", ".csv", ".json"):
            assert (await bob.ask("GET", f"{OWN}{ending}?user={ids['ann']}")).status == 403
            assert (await owner.ask("GET", f"/accounts/other/reports{ending}")).status == 404
            assert (await owner.ask("GET", f"{SITE}{ending}")).status == 403


@pytest.mark.holds("console.md#reports-2")
async def test_files_are_the_report_of_the_page(console: Any) -> None:
    async with console() as c:
        await furnished(c)
        operator = await c.as_("root", role="operator")
        query = "group_by=account&group_by=model&outcome=ok,upstream_error&range=24h"
        page = await operator.get(f"{SITE}?{query}")
        file = await operator.get(page.found(r'href="([^"]+\.csv[^"]*)"'))
        assert 'filename="report-all-' in file.headers["Content-Disposition"]
        records = list(csv.DictReader(io.StringIO(file.html)))
        assert [(one["account"], one["model"], one["calls"], one["errors"], one["amount"]) for one in records] == [
            ("acme", "m1", "1", "0", "2"),
            ("acme", "m2", "1", "1", "0.000000007"),
            ("other", "m1", "1", "0", "4"),
        ]
        form = json.loads((await operator.get(page.found(r'href="([^"]+\.json[^"]*)"'))).html)
        assert [row["duration_ms"]["p50"] for row in form["rows"]] == [40, 300, 300]
        assert form["group_by"] == ["account", "model"] and form["total"]["calls"] == 3


@pytest.mark.holds("console.md#reports-2")
async def test_long_report_shows_its_first_rows_and_its_file_all(console: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(report_rows, "MOST_SHOWN", 2)
    async with console() as c:
        await furnished(c)
        operator = await c.as_("root", role="operator")
        shown = await operator.get(f"{SITE}?group_by=account&group_by=model&group_by=outcome")
        rows = rows_of(shown.html)
        assert [row[:2] for row in rows] == [["other", "m1"], ["acme", "m1"], ["Total of 4 rows", "4"]]
        assert (
            "These are the first 2 of 4 rows. The total is of all rows, and the CSV file has all of them." in shown.text
        )
        path = shown.found(r'<p class="notice">[^<]*<a href="([^"]+)"')
        assert len((await operator.get(path)).html.splitlines()) == 5


@pytest.mark.holds("console.md#reports-4")
async def test_margin_is_for_the_operators_and_viewers_of_the_site_only(console: Any) -> None:
    async with console() as c:
        account = await history(c)
        viewer, owner = await c.as_("viewer", role="viewer"), await c.as_("owner", acme="owner")
        account.call(ago(hours=2), 8 * NANO, model="m2")
        account.flush()
        assert "Margin" not in (await viewer.get(SITE)).text
        assert "margin" not in (await viewer.get(f"{SITE}.csv")).html
        account.call(ago(hours=2), 4 * NANO, model="m1", upstream_cost=3 * NANO)
        account.call(ago(hours=1), NANO, model="m3", upstream_cost=2 * NANO)
        account.call(ago(hours=1), 0, model="free", upstream_cost=2)
        account.call(ago(hours=1), NANO // 10, model="near", upstream_cost=NANO // 10 + 1)
        account.flush()
        shown = await viewer.get(f"{SITE}?group_by=model")
        assert [(row[0], *row[-6:-3]) for row in rows_of(shown.html)] == [
            ("m2", "–", "–", "–"),
            ("m1", "3.00", "1.00", "25 %"),
            ("m3", "2.00", "−1.00", "−100 %"),
            ("near", "0.100000001", "−0.000000001", "&gt; −0.01 %"),
            ("free", "0.000000002", "−0.000000002", "–"),
            ("Total of 5 rows", "5.100000003", "7.999999997", "61.07 %"),
        ]
        assert "The upstream cost is known for 4 of 5 calls" in shown.text
        assert json.loads((await viewer.get(f"{SITE}.json")).html)["total"]["margin"] == "7.999999997"
        assert ",upstream_cost,margin," in (await viewer.get(f"{SITE}.csv")).html
        for browser in (owner, await c.as_("member", acme="member"), viewer):
            for path in (OWN, f"{OWN}.csv", f"{OWN}.json"):
                text = (await browser.get(f"{path}?margin=true&margin=1")).html.lower()
                assert "margin" not in text.partition("<main")[2 if "<main" in text else 0] and "upstream" not in text

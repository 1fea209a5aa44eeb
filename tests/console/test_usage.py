"""The overview, the usage, and the page of a call."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.console.pages import usage
from gateway.console.rendering import render
from gateway.history import usage_sums
from gateway.ledger.price_tables import store_prices
from gateway.reports import provider_health
from gateway.reports.reports import Reports
from gateway.web.recent_answers import RecentAnswers
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT, Browser
from tests.console.history import ago, calls, history

__all__ = ["database_address", "database_url"]

USAGE = "/accounts/acme/usage"
ODD = "<b>\"'"


async def test_overview_shows_balance_spend_errors_and_keys(console) -> None:
    async with console() as c:
        key = (await c.services.store.keys.create("acme", name="robot")).id
        account = await history(c)
        account.call(ago(hours=1), 7, key=key, model="tiny")
        account.call(ago(hours=2), 2_000_000_000, key=key, model="fake-chat", outcome="upstream_error")
        account.call(ago(days=5), 1_000_000_000, key=key, model="fake-chat")
        account.flush()
        owner = await c.as_("owner", acme="owner")
        text = (await owner.get("/accounts/acme")).text
        assert "25.00 USD" in text and "3.000000007 USD" in text and "33.33 %" in text and "robot 3 3.000000007" in text
        assert "0.000000007" in text  # in the table behind the chart
        day = (await owner.get("/accounts/acme?range=24h")).text
        assert "2.000000007 USD" in day and "50 %" in day


@pytest.mark.holds("console.md#usage-and-overview-1")
async def test_table_of_the_chart_has_spend_and_calls_of_each_model(console) -> None:
    async with console() as c:
        account = await history(c)
        for number in range(9):
            account.call("2026-03-05T10:00", 9 - number, model=f"m{number}")
        account.call("2026-03-05T11:00", 1, model="m0", outcome="upstream_error")
        account.call("2026-03-06T11:00", 0, model="m8")
        account.flush()
        owner = await c.as_("owner", acme="owner")
        for path in ("/accounts/acme", USAGE):
            text = (await owner.get(f"{path}?from=2026-03-04&to=2026-03-07")).text
            assert "Spend in USD and calls by model, by day" in text
            assert f"m5 m6 other models {' '.join(['Spend Calls'] * 8)} 2026-03-04 {' '.join(['0'] * 16)}" in text
            assert "2026-03-05 0.00000001 2 0.000000008 1" in text and "0.000000003 1 0.000000003 2 2026-03-06" in text
            assert f"2026-03-06 {' '.join(['0'] * 15)} 1 2026-03-07" in text


@pytest.mark.holds("console.md#usage-and-overview-1")
async def test_chart_of_too_many_rows_has_longer_periods(console, monkeypatch) -> None:
    monkeypatch.setattr(usage_sums, "MOST_ROWS", 10)
    monkeypatch.setattr(usage_sums, "_statement", usage_sums._statement.__wrapped__)  # none is kept with this limit
    async with console() as c:
        c.services.recent = RecentAnswers(0.0)
        account = await history(c)
        for day in range(1, 7):
            for outcome in ("ok", "client_closed", "upstream_error"):
                account.call(f"2026-03-0{day}T10:00", 1, model="m", outcome=outcome)
        account.flush()
        owner = await c.as_("owner", acme="owner")
        for path, calls in (("/accounts/acme", "Calls 18"), (USAGE, "18 calls")):
            page = await owner.get(f"{path}?from=2026-03-01&to=2026-03-06")
            assert "calls by model, by day" in page.text and calls in page.text  # outcomes are no rows of the chart
        for day in range(1, 7):
            account.call(f"2026-03-0{day}T10:00", 1, model="n")
        account.flush()
        for path, calls in (("/accounts/acme", "Calls 24"), (USAGE, "24 calls")):
            page = await owner.get(f"{path}?from=2026-03-01&to=2026-03-06")
            assert "calls by model, by month" in page.text and calls in page.text
            assert "2026-03 0.000000018 18 0.000000006 6" in page.text


@pytest.mark.holds("console.md#usage-and-overview-1")
async def test_chart_of_a_long_range_has_so_few_rows_that_the_page_stays_small(console) -> None:
    async with console() as c:
        for number in range(9):
            await calls(c, *(ago(days=days) for days in range(1, 365)), model=f"model-{number}", cost=1234567 + number)
        owner, today = await c.as_("own", acme="owner"), datetime.now(UTC)
        for years in (1, 50):
            dates = {"from": f"{today - timedelta(days=365 * years):%Y-%m-%d}", "to": f"{today:%Y-%m-%d}"}
            for path in ("/accounts/acme", USAGE):
                page = await owner.get(f"{path}?{urlencode(dates)}")
                assert "calls by model, by month" in page.text and "3,276" in page.text
                assert 12 <= page.html.count("<td data-at=") <= 14, (years, path)  # from the first call to the last
                assert len(page.body) < 55_000  # its files are 45 kB
        shown = await owner.get(f"{USAGE}?range=90d")
        assert "by model, by day" in shown.text and len(shown.body) < 55_000


@pytest.mark.holds("console.md#reports-1")
async def test_overview_and_reports_count_the_same_errors(console) -> None:
    async with console() as c:
        key = (await c.services.store.keys.create("acme", name="robot")).id
        ends = ("ok", "client_closed", "replayed", "abandoned", "", "upstream_error", "request_cancelled")
        for minute, outcome in enumerate(ends):
            await calls(c, ago(minutes=60 - minute), key=key, model="tiny", outcome=outcome)
        await calls(c, ago(minutes=10), key=key, model="tiny", kind="reclaim", outcome="")
        operator = await c.as_("root", role="operator", acme="owner")
        assert "37.5 % 3 failed" in (await operator.get("/accounts/acme")).text
        report = json.loads((await operator.get("/accounts/acme/reports.json")).html)
        assert (report["total"]["calls"], report["total"]["errors"]) == (8, 3)
        transactions = (await c.services.people()).transactions
        found = await provider_health._performance(ROOT, Reports(transactions), ["tiny"])
        assert [(done.calls, done.failed) for done in found.values()] == [(8, 3)]
        tags = re.findall(r'<span class="tag (\w+)">(\w+)</span>', (await operator.get(USAGE)).html)
        assert {name for tone, name in tags if tone == "bad"} == {"upstream_error", "request_cancelled", "reclaimed"}


async def test_overview_says_when_the_money_runs_out(console) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        assert "money left" not in (await owner.get("/accounts/acme")).text
        await c.services.store.accounts.credit("acme", -25_000_000_000, allow_negative=True)
        assert "There is no money left" in (await owner.get("/accounts/acme")).text
        await c.services.store.accounts.disable("acme")
        assert "The account is disabled" in (await owner.get("/accounts/acme")).text


async def test_member_sees_only_own_calls_and_owner_all(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        ann, owner, viewer = (
            await c.signed_in(user),
            await c.as_("owner", acme="owner"),
            await c.as_("v", role="viewer"),
        )
        account = await history(c)
        theirs = account.call(ago(hours=2), 9, user="usr_other", key="key_other", model="fake-chat")
        mine = account.call(ago(hours=1), 5, user=user.id, key="key_mine", model="tiny")
        account.flush()
        for browser, seen, cost in ((ann, [mine], "5"), (owner, [mine, theirs], "14"), (viewer, [mine, theirs], "14")):
            page = await browser.get(USAGE)
            assert [one for one in (mine, theirs) if one in page.html] == seen
            assert f"{len(seen)} call{'s' if len(seen) > 1 else ''}, 0.{cost:0>9} USD" in page.text
            csv = (await browser.get(f"{USAGE}.csv")).html
            assert [one for one in (mine, theirs) if one in csv] == seen
        assert (await ann.ask("GET", f"{USAGE}/{theirs}")).status == 404
        assert (await ann.get(f"{USAGE}?user=usr_other", 403)).status == 403
        assert (await (await c.as_("eve", other="owner")).ask("GET", f"{USAGE}/{mine}")).status == 404


async def test_readers_of_the_same_calls_share_a_rendered_part_and_nothing_of_their_own(console, monkeypatch) -> None:
    rendered: list[str] = []

    def counted(template: str, *rest: Any) -> bytes:
        rendered.append(template)
        return render(template, *rest)

    monkeypatch.setattr(usage, "render", counted)
    async with console() as c:
        c.services.recent = RecentAnswers(30.0)  # no second passes between these pages
        await c.services.store.keys.create("acme", name="robot")
        pages = {}
        for name, role in (("ann", "owner"), ("bob", "owner"), ("cid", "member")):
            browser = await c.signed_in(await c.user(f"{name}@example.com", acme=role))
            page = pages[name] = await browser.get(USAGE)
            others = {"ann", "bob", "cid"} - {name}
            own = re.sub(r'<select name="user">.*?</select>', "", page.html)  # owners choose among members
            assert f"{name}@example.com" in own and not any(f"{other}@" in own for other in others)
            assert (own == page.html) == (role == "member")
        assert rendered == ["_usage.html"] * 2  # the owners' one, and the member's
        assert "robot" in pages["ann"].html and "robot" in pages["bob"].html and "robot" not in pages["cid"].html
        assert (
            len({token for page in pages.values() for token in re.findall(r'name="xsrf" value="([^"]+)"', page.html)})
            == 3
        )
        for query in ("?range=24h", "?key=key_rare", "?outcome=ok", "?before=7"):  # another question, another part
            rendered.clear()
            await browser.get(USAGE + query)
            assert rendered == ["_usage.html"]


async def test_calls_are_filtered_and_paged_without_a_gap(console) -> None:
    async with console() as c:
        account = await history(c)
        for number in range(130):
            key = "key_rare" if number % 10 == 0 else "key_often"
            account.call(ago(minutes=200 - number), 1, key=key, model="tiny", request_id=f"req-{number}")
        account.flush()
        owner = await c.as_("owner", acme="owner")
        assert await all_calls(owner, f"{USAGE}?range=24h") == [f"req-{number}" for number in reversed(range(130))]
        rare = await all_calls(owner, f"{USAGE}?range=24h&key=key_rare")
        assert rare == [f"req-{number}" for number in reversed(range(0, 130, 10))]
        assert not await all_calls(owner, f"{USAGE}?range=24h&outcome=client_closed")
        assert len(await all_calls(owner, f"{USAGE}?from=2020-01-01&to=2020-02-01")) == 0
        for dates in ("to=9999-12-31", "from=9999-12-30", "to=0001-01-01"):
            assert "The year is between 1970 and 9998" in (await owner.get(f"{USAGE}?{dates}")).text
        assert "must end after" in (await owner.get(f"{USAGE}?from=2021-01-01&to=2020-02-01")).text


async def all_calls(browser: Browser, path: str) -> list[str]:
    found: list[str] = []
    while path:
        page = await browser.get(path)
        found += re.findall(r'/usage/(req-\d+)"', page.html)
        older = re.search(r'href="([^"]+)">Older', page.html)
        path = unescape(older[1]) if older else ""
    return found


@pytest.mark.holds("console.md#the-page-of-a-call-1")
async def test_call_is_taken_apart_and_compared_with_the_usual_one(console) -> None:
    price = Price(version="v1", input=1_000_000_000, output=2_500_000_000)
    async with console() as c:
        await store_prices(c.services.store.store, [price])
        key = (await c.services.store.keys.create("acme", name="robot")).id
        usual, large = Usage(in_text=100, out_text=10), Usage(in_text=90_000, out_text=10)
        account = await history(c)
        meta = {"key": key, "model": "fake-chat", "price": "v1", "price_factor": "1", "hold": 500_000}
        for hours in range(20, 10, -1):
            account.call(ago(hours=hours), price.cost(usual), usage=usual, **meta)
        request = account.call(ago(hours=1), price.cost(large), usage=large, attempts=2, tags={"team": ODD}, **meta)
        account.flush()
        owner = await c.as_("owner", acme="owner")
        text = (await owner.get(f"{USAGE}/{request}")).text
        assert "Input 90,000 1.00 per 1,000,000 0.09" in text and "Output 10 2.50 per 1,000,000 0.000025" in text
        assert "Charged 0.090025" in text and "Held at first 0.0005" in text and f"team={ODD}" in text
        assert "Yes: the 10 calls" in text and "0.000125 USD each" in text
        assert "The prompt was longer than usual: 90,000 tokens instead of 100." in text
        assert "The answer was longer" not in text and "robot" in text
        first = await calls(c, ago(minutes=1), cost=price.cost(usual), usage=usual, **{**meta, "key": "key_new"})
        assert "too few calls" in (await owner.get(f"{USAGE}/{first[0]}")).text


@pytest.mark.holds("console.md#the-page-of-a-call-1")
async def test_page_of_a_call_has_what_each_attempt_answered(console) -> None:
    async with console() as c:
        answers = [
            {"provider": "first", "model": "m", "code": "upstream_auth_error", "status": 401, "ms": 12},
            {"provider": "<b>second</b>", "model": "m", "code": "cancelled", "ms": 1340},
            {"provider": "third", "model": "fallback", "code": "ok", "status": 200, "ms": 95},
        ]
        account = await history(c)
        request = account.call(ago(hours=1), 5, attempts=3, answers=answers)
        old = account.call(ago(hours=1), 5, attempts=2)
        account.flush()
        owner, viewer = await c.as_("owner", acme="owner"), await c.as_("viewer", role="viewer")
        for browser, status in ((owner, "–"), (viewer, "401")):
            page = await browser.get(f"{USAGE}/{request}")
            assert f"m at first upstream_auth_error {status} 12 ms" in page.text
            assert "m at <b>second</b> cancelled – 1.34 s fallback at third ok 200 95 ms" in page.text
            assert "<b>second" not in page.html and "another attempt had answered" in page.text
        page = await owner.get(f"{USAGE}/{old}")
        assert "Answered HTTP" not in page.text and "Attempts 2" in page.text


async def test_page_of_a_call_shows_where_two_targets_meet(console) -> None:
    async with console() as c:
        answers = [
            {
                "provider": "slow", "model": "m", "code": "upstream_timeout", "status": 200, "ms": 9,
                "tokens_in": 31, "estimated": True,
            },
            {"provider": "first", "model": "m", "code": "upstream_stream_truncated", "status": 200, "ms": 12},
            {
                "provider": "second", "model": "m", "code": "ok", "status": 200, "ms": 95,
                "tokens_in": 1900, "tokens_out": 3,
            },
        ]  # fmt: skip
        account = await history(c)
        request = account.call(ago(hours=1), 5, attempts=3, answers=answers, joined={"form": "restart", "offset": 1234})
        account.flush()
        owner = await c.as_("owner", acme="owner")
        page = await owner.get(f"{USAGE}/{request}")
        assert "cut after 1,234 characters, and the last one gave the rest" in page.text and "restart" in page.text
        assert "about 31 + 0" in page.text and "1,900 + 3" in page.text and "the charge is below" in page.text


async def test_page_of_a_failed_call_does_not_say_that_it_was_answered(console) -> None:
    said: dict[str, list[dict[str, Any]]] = {
        "Answered by m at first": [{"outcome": "ok"}, {"outcome": "client_closed", "first_token_ms": 40}],
        "Last tried m at first": [{"outcome": "upstream_timeout"}, {"outcome": "client_closed"}],
        "Last tried – Attempts": [{"outcome": "no_healthy_upstream", "provider": ""}],
    }
    async with console() as c:
        account = await history(c)
        requests = {
            text: [account.call(ago(hours=1), 0, **{"model": "m", "provider": "first", **call}) for call in calls_of]
            for text, calls_of in said.items()
        }
        account.flush()
        owner = await c.as_("owner", acme="owner")
        for text, found in requests.items():
            for request in found:
                page = (await owner.get(f"{USAGE}/{request}")).text
                assert text in page and ("Answered by" in page) == text.startswith("Answered")


async def test_models_tags_and_outcomes_are_shown_as_text(console) -> None:
    text = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    async with console() as c:
        [request] = await calls(c, ago(hours=1), model=text, outcome=text, provider=text, tags={"team": text})
        owner = await c.as_("owner", acme="owner")
        for path in ("/accounts/acme", USAGE, f"{USAGE}/{request}", f"{USAGE}?{urlencode({'model': text})}"):
            page = await owner.get(path)
            assert "<script>" not in page.html and "<img" not in page.html


async def test_csv_has_no_formula_and_every_digit(console) -> None:
    async with console() as c:
        await calls(c, ago(hours=1), cost=7, model="=cmd()")
        answer = await (await c.as_("owner", acme="owner")).get(f"{USAGE}.csv")
        assert answer.headers["Content-Disposition"].startswith('attachment; filename="usage-acme-')
        lines = answer.html.splitlines()
        assert lines[0].startswith("at,request_id,key,model") and "'=cmd()" in lines[1] and ",0.000000007," in lines[1]

"""A page without anything to show says what to do next, with a link that leads there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest

from tests.console.client import Browser, Shown
from tests.console.history import ago, calls

OVERVIEW = "/accounts/acme"
USAGE = "/accounts/acme/usage"


def steps(page: Shown) -> dict[str, str]:
    """The links of the empty state: addresses by text."""
    text = page.found(r'<p class="empty"[^>]*>(.*?)</p>')
    return {name: unescape(address) for address, name in re.findall(r'<a href="([^"]+)">([^<]+)</a>', text)}


async def followed(browser: Browser, path: str, step: str) -> Shown:
    """The page behind a link of the empty state of another page."""
    return await browser.get(steps(await browser.get(path))[step])


async def test_range_without_calls_leads_to_one_that_has_them(console: Any) -> None:
    async with console() as c:
        await c.services.store.keys.create("acme", name="robot")
        [old] = await calls(c, ago(days=200), model="tiny")
        operator = await c.as_("root", role="operator", acme="owner")
        for page in (OVERVIEW, USAGE, "/site/calls"):
            path, seen = page, list[str]()
            while not seen or "twelve" not in seen[-1]:
                [(text, path)] = steps(await operator.get(path)).items()
                seen.append(text)
            assert seen == [f"Look at the last {length}" for length in ("30 days", "90 days", "twelve months")]
            found = await operator.get(path)
            assert old in found.html or (page == OVERVIEW and "Calls 1 Tokens" in found.text)


@pytest.mark.holds("console.md#usage-and-overview-2")
async def test_dates_without_calls_lead_to_more_days_around_them(console: Any) -> None:
    async with console() as c:
        await c.services.store.keys.create("acme", name="robot")
        before, after = await calls(c, "2020-01-20T10:00", "2020-02-20T10:00", model="tiny")
        operator = await c.as_("root", role="operator", acme="owner")
        for page in (USAGE, "/site/calls"):
            [(text, path)] = steps(await operator.get(f"{page}?from=2020-02-01&to=2020-02-15")).items()
            assert text == "Look at 2020-01-17 to 2020-03-01"
            found = await operator.get(path)
            assert before in found.html and after in found.html
            today = datetime.now(UTC).date()
            [text] = steps(await operator.get(f"{page}?from={today}&to={today}"))
            assert text == f"Look at {today - timedelta(days=1)} to {today}"  # later there are no calls
            await operator.get(steps(await operator.get(f"{page}?from=1970-01-05&to=1970-06-30")).popitem()[1])
            assert not steps(await operator.get(f"{page}?from=2021-01-01&to=2022-01-01"))  # a year
        assert not steps(await operator.get(f"{USAGE}?from=1970-01-01&to=2019-01-01"))


async def test_filters_that_no_call_passes_can_be_turned_off(console: Any) -> None:
    async with console() as c:
        await c.services.store.keys.create("acme", name="robot")
        old, new = await calls(c, ago(days=9), ago(hours=1), model="tiny")
        operator = await c.as_("root", role="operator", acme="owner")
        for page in (USAGE, "/site/calls"):
            found = await followed(operator, f"{page}?model=secret&range=24h", "Show calls without filters")
            assert new in found.html and old not in found.html
            links = steps(await operator.get(f"{page}?model=secret&range=24h"))
            assert "model=secret" in links["look at the last 7 days"]
        assert new in (await followed(operator, f"{USAGE}?before=1", "Show the newest")).html


async def test_page_of_running_calls_leads_to_those_that_ended(console: Any) -> None:
    async with console() as c:
        [ended] = await calls(c, ago(hours=1))
        operator = await c.as_("root", role="operator")
        assert ended in (await followed(operator, "/site/running", "Calls")).html
        assert ended in (await followed(operator, "/accounts/acme/running", "Usage")).html


async def test_playground_leads_those_who_are_no_members_to_where_they_become_one(console: Any) -> None:
    async with console() as c:
        user = await c.user("root@example.com", role="operator")
        operator, viewer = await c.signed_in(user), await c.as_("eva", role="viewer")
        path = "/accounts/acme/playground"
        assert "Invite" in (await followed(operator, path, "account's members")).text
        own = steps(await operator.get(path))["your user"]
        assert "root@example.com" in (await operator.get(own)).text
        await operator.post(f"{own}/memberships", page=own, account="acme", account_role="member")
        assert "Message" in (await operator.get(path)).text
        assert "Members" in (await followed(viewer, path, "account's members")).text


async def test_empty_statement_leads_to_those_of_other_months(console: Any) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        found = await followed(owner, "/accounts/acme/statements/2020-01", "Choose another month")
        assert "Statements" in found.text and 'id="statements"' in found.html

"""The page of an account's sessions."""

from __future__ import annotations

import re

import pytest

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.history import session_list
from gateway.ledger.price_tables import store_prices
from tests.admin_api.both_databases import database_address, database_url
from tests.console.history import ago, calls, history

__all__ = ["database_address", "database_url"]

PATH = "/accounts/acme/sessions"
PRICE = Price(version="v7", input=1_000_000_000, cached_input=100_000_000, output=2_500_000_000)


async def test_sessions_have_their_calls_and_cost_and_the_last_used_is_first(console) -> None:
    async with console() as c:
        await calls(c, ago(days=2), ago(hours=5), cost=1_000_000_000, session="agent-1")
        await calls(c, ago(hours=1), cost=500_000_000, session="agent-2")
        await calls(c, ago(days=8), cost=7_000_000_000, session="agent-1")
        await calls(c, ago(days=8), session="long-ago")
        await calls(c, ago(hours=1), session="")
        account = await history(c, "other")
        account.call(ago(hours=1), 1, session="elsewhere")
        account.flush()
        owner = await c.as_("owner", acme="owner")
        page = await owner.get(PATH)
        assert "2 sessions with 3 calls, 2.50 USD" in page.text
        assert re.search(r"agent-2 .*UTC 1 – .* 0\.50 – agent-1 .* UTC 2 43 h 0 min .* 2\.00 –", page.text), page.text
        assert "long-ago" not in page.text and "elsewhere" not in page.text
        assert 'aria-current="page">Sessions' in page.html
        [link] = re.findall(r'href="([^"]*session=agent-1)"', page.html)
        assert "2 calls" in (await owner.get(link.replace("&amp;", "&"))).text


async def test_session_has_its_models_its_share_of_the_cache_and_what_that_saved(console) -> None:
    async with console() as c:
        await store_prices(c.services.store.store, [PRICE])
        account = await history(c)
        for minutes, model, cached in ((30, "tiny", 0), (29, "fake-chat", 600_000), (9, "fake-chat", 200_000)):
            usage = Usage(in_text=1_000_000 - cached, in_cached=cached, out_text=1_000)
            cost = PRICE.cost(usage)
            account.call(
                ago(minutes=minutes), cost, usage=usage, model=model, price="v7", price_factor="1", session="agent-1"
            )
        account.flush()
        text = (await (await c.as_("own", acme="owner")).get(PATH)).text
        # Of three million tokens 0.8 come from the cache, at 0.1 instead of 1.
        assert re.search(r"agent-1 .*UTC 3 20 min 0 s fake-chat, tiny 3,000,000 26\.\d+ % 3,000 [\d.]+ 0\.72", text), (
            text
        )


async def test_refund_lowers_the_cost_and_is_no_call(console) -> None:
    async with console() as c:
        account = await history(c)
        account.call(ago(hours=2), 900_000_000, session="agent-1")
        account.line(ago(hours=1), "refund", 400_000_000, key="key_1", session="agent-1")
        account.flush()
        assert "1 session with 1 call, 0.50 USD" in (await (await c.as_("own", acme="owner")).get(PATH)).text


async def test_members_see_the_sessions_of_their_own_calls(console) -> None:
    async with console() as c:
        ann = await c.user("ann@example.com", acme="member")
        await calls(c, ago(hours=1), user=ann.id, session="of-ann")
        await calls(c, ago(hours=1), user="usr_other", session="of-others")
        shown = (await (await c.signed_in(ann)).get(PATH)).text
        assert "of-ann" in shown and "of-others" not in shown
        assert "of-others" in (await (await c.as_("view", role="viewer")).get(PATH)).text


async def test_account_without_sessions_says_so(console) -> None:
    async with console() as c:
        assert (
            "No call of the last 7 days was part of a session"
            in (await (await c.as_("ann", acme="member")).get(PATH)).text
        )


async def test_many_sessions_come_in_pages(console) -> None:
    async with console() as c:
        account = await history(c)
        for number in range(60):
            account.call(ago(minutes=100 - number), 1, session=f"agent-{number}")
        account.flush()
        owner = await c.as_("owner", acme="owner")
        first, second = await owner.get(PATH), await owner.get(f"{PATH}?page=2")
        assert "1–50 of 60" in first.text and "agent-59" in first.text and "agent-9 " not in first.text
        assert "51–60 of 60" in second.text and "agent-9 " in second.text


async def test_only_the_newest_lines_are_read_and_the_page_says_so(console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_list, "MOST_LINES", 3)
    async with console() as c:
        await calls(c, *(ago(hours=hours) for hours in (5, 4, 3, 2)), session="agent-1")
        page = await (await c.as_("owner", acme="owner")).get(PATH)
        assert "1 session with 3 calls" in page.text and "only those since" in page.text

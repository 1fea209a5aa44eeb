"""Lists of calls by cost or duration read many lines: a person has few of them, and no other page waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.reports import call_lists, statements
from gateway.web.request_limits import SEARCHES
from tests.console.history import ago, calls
from tests.console.test_long_reads import EACH, ask
from tests.console.test_waits import leave
from tests.held import Held, held
from tests.polling import until

__all__ = ["held"]

USAGE, CALLS = "/accounts/acme/usage", "/site/calls"
QUERIES = ("sort=cost", "sort=duration", "least_cost=0.0001", "least_seconds=0.1")
MOST = SEARCHES.most


@pytest.mark.holds("console.md#security-5")
@pytest.mark.parametrize("path", [USAGE, CALLS])
async def test_others_and_other_pages_are_answered_while_ranked_lists_are_read(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    held.put(monkeypatch, call_lists, "ranked_calls")
    async with console() as c:
        await calls(c, ago(minutes=5))
        ann, ben = await c.as_("ann", acme="member", role="viewer"), await c.as_("ben", acme="member")
        waiting = ask(ann, *[f"{path}?sort=cost&least_cost=0.00{number}" for number in range(1, MOST + 1)])
        try:
            await until(lambda: len(c.site.waits) == EACH * MOST and held.calls == 1)
            async with asyncio.timeout(20.0):
                for query in QUERIES:
                    refused = await ann.ask("GET", f"{path}?{query}")
                    assert (refused.status, "You have two lists by cost" in refused.text) == (429, True), query
                assert (await ann.ask("GET", path)).status == 200
                for other in ("/profile", USAGE, "/accounts/acme"):
                    assert (await ben.ask("GET", other)).status == 200
        finally:
            held.go.set()
        assert [shown.status for shown in await asyncio.gather(*waiting)] == [200] * MOST
        assert len(c.site.waits) == 0 and (await ann.ask("GET", f"{path}?sort=cost")).status == 200


async def test_ranked_list_of_a_browser_that_left_frees_its_place(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.put(monkeypatch, call_lists, "ranked_calls")
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        waiting = ask(ann, *[f"{USAGE}?sort=cost&least_cost=0.00{number}" for number in range(1, MOST + 1)])
        try:
            await until(lambda: len(c.site.waits) == EACH * MOST)
            await leave(*waiting)
            await until(lambda: len(c.site.waits) == 0)
        finally:
            held.go.set()


@pytest.mark.holds("console.md#security-5")
async def test_slow_statements_delay_no_other_page_and_count_as_reports(
    console: Any, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.put(monkeypatch, statements, "_read")
    month = ago()[:7]
    async with console() as c:
        await calls(c, ago(minutes=5))
        ann, ben = await c.as_("ann", acme="owner"), await c.as_("ben", acme="member")
        waiting = ask(ann, *[f"/accounts/acme/statements/{month}{ending}" for ending in ("", "/lines.csv")])
        try:
            await until(lambda: len(c.site.waits) == EACH * 2)
            async with asyncio.timeout(20.0):
                refused = await ann.ask("GET", "/accounts/acme/reports")
                assert (refused.status, "You have two reports under way" in refused.text) == (429, True)
                assert (await ben.ask("GET", "/profile")).status == 200
        finally:
            held.go.set()
        assert [shown.status for shown in await asyncio.gather(*waiting)] == [200, 200]

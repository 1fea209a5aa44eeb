"""Pages are computed a few at a time, however many readers ask for them."""

from __future__ import annotations

import asyncio

import pytest

from gateway.console.replies import Document, Reply
from gateway.console.route import PageRoute, PageRouter
from gateway.console.site import MOST_AT_ONCE, SHARE
from gateway.console.visit import Visit
from tests.polling import until


@pytest.mark.holds("console.md#security-4", "security.md#shares-5")
async def test_person_or_network_with_many_slow_pages_leaves_turns_to_others(console) -> None:
    running, may_end = list[str](), asyncio.Event()

    async def slow(visit: Visit) -> Reply:
        running.append(visit.actor.name if visit.is_signed_in else visit.asked.address)
        await may_end.wait()
        return Document(b"{}")

    async def quick(visit: Visit) -> Reply:
        return Document(b"{}")

    async with console() as c:
        ann, ben, stranger = await c.as_("ann"), await c.as_("ben"), await c.browser()
        c.site.router = PageRouter(
            [
                PageRoute(method="GET", path="/slow", audience="public", function=slow),
                PageRoute(method="GET", path="/quick", audience="public", function=quick),
            ]
        )
        for browser, headers in ((ann, {"X-Forwarded-For": "192.0.2.1"}), (stranger, {"X-Forwarded-For": "192.0.2.2"})):
            asked = [asyncio.create_task(browser.get("/slow", headers=headers)) for _ in range(3 * MOST_AT_ONCE)]
            await until(lambda: len(running) == SHARE)
            async with asyncio.timeout(20.0):
                await ben.get("/quick")
                await (await c.browser()).get("/quick", headers={"X-Forwarded-For": "192.0.2.3"})
            assert len(set(running)) == 1
            may_end.set()
            await asyncio.gather(*asked)
            may_end.clear()
            running.clear()


@pytest.mark.holds("console.md#security-4")
async def test_person_has_a_number_of_pages_that_wait(console, monkeypatch) -> None:
    may_end = asyncio.Event()

    async def slow(visit: Visit) -> Reply:
        await may_end.wait()
        return Document(b"{}")

    monkeypatch.setattr("gateway.console.site.MOST_OF_ONE", 3)
    async with console() as c:
        ann = await c.as_("ann")
        c.site.router = PageRouter([PageRoute(method="GET", path="/slow", audience="signed_in", function=slow)])
        asked = [asyncio.create_task(ann.ask("GET", "/slow")) for _ in range(SHARE + 3 + 1)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=20.0)
        assert [(task.result().status, "your pages" in task.result().text) for task in done] == [(429, True)]
        may_end.set()
        assert sorted(shown.status for shown in await asyncio.gather(*asked)) == [200] * (SHARE + 3) + [429]


async def test_pages_take_turns_and_those_that_wait_for_others_take_none(console) -> None:
    running, may_end = list[str](), asyncio.Event()

    async def slow(visit: Visit) -> Reply:
        running.append(visit.asked.path)
        await may_end.wait()
        return Document(b"{}")

    async with console() as c:
        c.site.router = PageRouter(
            [
                PageRoute(method="GET", path="/page", audience="public", function=slow),
                PageRoute(method="GET", path="/waits", audience="public", function=slow, waits=True),
            ]
        )
        browser = await c.browser()
        networks = [{"X-Forwarded-For": f"192.0.2.{number}"} for number in range(MOST_AT_ONCE + 3)]
        asked = [asyncio.create_task(browser.get("/page", headers=network)) for network in networks]
        await until(lambda: len(running) == MOST_AT_ONCE)
        asked += [asyncio.create_task(browser.get("/waits")) for _ in range(3)]
        await until(lambda: running.count("/waits") == 3)
        assert running.count("/page") == MOST_AT_ONCE
        may_end.set()
        await asyncio.gather(*asked)
        assert running.count("/page") == MOST_AT_ONCE + 3

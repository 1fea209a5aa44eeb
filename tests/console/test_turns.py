"""Pages are computed a few at a time, however many readers ask for them."""

from __future__ import annotations

import asyncio

from gateway.console.replies import Document, Reply
from gateway.console.route import Route, Router
from gateway.console.site import MOST_AT_ONCE
from gateway.console.visit import Visit
from tests.polling import until


async def test_pages_take_turns_and_those_that_wait_for_others_take_none(console) -> None:
    running, may_end = list[str](), asyncio.Event()

    async def slow(visit: Visit) -> Reply:
        running.append(visit.asked.path)
        await may_end.wait()
        return Document(b"{}")

    async with console() as c:
        c.site.router = Router(
            [
                Route(method="GET", path="/page", audience="public", function=slow),
                Route(method="GET", path="/waits", audience="public", function=slow, waits=True),
            ]
        )
        browser = await c.browser()
        asked = [asyncio.create_task(browser.get("/page")) for _ in range(MOST_AT_ONCE + 3)]
        await until(lambda: len(running) == MOST_AT_ONCE)
        asked += [asyncio.create_task(browser.get("/waits")) for _ in range(3)]
        await until(lambda: running.count("/waits") == 3)
        assert running.count("/page") == MOST_AT_ONCE
        may_end.set()
        await asyncio.gather(*asked)
        assert running.count("/page") == MOST_AT_ONCE + 3

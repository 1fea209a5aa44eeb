"""Pages that wait for others: a few at a time for each person, and none for a browser that has left."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from gateway.console.handler import PageHandler
from gateway.console.page_run import MOST_WAITS
from gateway.console.replies import Document, Reply
from gateway.console.route import PageRoute, PageRouter
from gateway.console.visit import Visit
from gateway.reports.call_details import CallReader
from gateway.web.attended import AttendedWork, ClientLeft
from tests.captured_log import logged
from tests.console.client import Browser, Shown
from tests.polling import until

COST = "/accounts/acme/playground/calls/req_none"


async def leave(*asked: asyncio.Task[Any]) -> None:
    """Close the connections of these requests."""
    for task in asked:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def ask(browser: Browser, path: str, times: int) -> list[asyncio.Task[Shown]]:
    return [asyncio.create_task(browser.ask("GET", path)) for _ in range(times)]


@pytest.mark.holds("console.md#security-3")
async def test_one_person_waits_for_the_costs_of_a_few_calls_at_a_time(console) -> None:
    async with console() as c:
        ann, ben = await c.as_("ann", acme="member"), await c.as_("ben", acme="member")
        waiting = ask(ann, COST, MOST_WAITS)
        await until(lambda: len(c.site.waits) == MOST_WAITS)
        refused = await ann.ask("GET", COST)
        assert (refused.status, "too many times at once" in refused.text) == (429, True)
        assert "Overview" in (await ann.get("/accounts/acme")).text
        waiting += ask(ben, COST, 1)
        await until(lambda: len(c.site.waits) == MOST_WAITS + 1)
        await leave(*waiting)
        await until(lambda: len(c.site.waits) == 0)


async def test_nothing_looks_for_the_cost_of_a_call_once_the_browser_has_left(console, monkeypatch) -> None:
    looked, show = list[str](), CallReader.show

    async def counted(self: CallReader, actor: Any, request_id: str, account: str) -> Any:
        looked.append(request_id)
        return await show(self, actor, request_id, account)

    monkeypatch.setattr(CallReader, "show", counted)
    monkeypatch.setattr("gateway.console.pages.playground.LOOK_EVERY", 0.01)
    monkeypatch.setattr("gateway.console.pages.playground.SETTLED_WITHIN", 600.0)
    async with console() as c:
        ann = await c.as_("ann", acme="member")
        waiting = ask(ann, COST, 3)
        await until(lambda: len(looked) > 9)
        await leave(*waiting)
        await until(lambda: len(c.site.waits) == 0)
        before = len(looked)
        for _ in range(10):
            await ann.get("/profile")
        assert len(looked) == before


@pytest.mark.holds("console.md#security-3")
@pytest.mark.parametrize("audience", ["signed_in", "public"])
async def test_every_route_that_waits_ends_with_the_connection_and_the_log_says_so(
    console, audience: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    running, ended = list[str](), list[str]()

    async def endless(visit: Visit) -> Reply:
        running.append(visit.asked.path)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(visit.asked.path)
        return Document(b"{}")

    async with console() as c:
        ann = await c.as_("ann")
        c.site.router = PageRouter(
            [PageRoute(method="GET", path="/waits", audience=audience, function=endless, waits=True)]
        )
        waiting = ask(ann, "/waits", 2)
        await until(lambda: len(running) == 2)
        await leave(*waiting)
        await until(lambda: len(ended) == 2)
    await logged(capfd, '"path":"/waits","status":499', times=2)


async def test_route_that_changes_something_is_completed_when_the_browser_has_left(console, monkeypatch) -> None:
    begun, left, may_end, changed = asyncio.Event(), asyncio.Event(), asyncio.Event(), list[str]()
    closed = PageHandler.on_connection_close

    def noticed(handler: PageHandler) -> None:
        closed(handler)
        left.set()

    monkeypatch.setattr(PageHandler, "on_connection_close", noticed)

    async def change(visit: Visit) -> Reply:
        begun.set()
        await may_end.wait()
        changed.append(visit.asked.path)
        return Document(b"{}")

    async with console() as c:
        callback, _ = c.site.router.search("GET", "/sign-in/oidc/any/callback")
        assert callback.waits and callback.completes
        route = PageRoute(method="GET", path="/changes", audience="public", function=change, waits=True, completes=True)
        c.site.router = PageRouter([route])
        [asked] = ask(await c.as_("ann"), "/changes", 1)
        await begun.wait()
        await leave(asked)
        await left.wait()
        may_end.set()
        await until(lambda: changed == ["/changes"])


async def test_work_for_a_client_that_has_left_already_does_not_begin() -> None:
    begun = list[int]()

    async def work() -> int:
        begun.append(1)
        return 7

    attended = AttendedWork()
    assert await attended.run(work) == 7
    attended.client_left()
    with pytest.raises(ClientLeft):
        await attended.run(work)
    assert begun == [1]


async def test_error_of_the_work_is_raised() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await AttendedWork().run(fails)

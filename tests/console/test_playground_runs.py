"""Calls of the playground: a few of one person at a time, and none for a browser that has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from gateway.console import playground_runs
from gateway.console.playground_runs import MOST_OF_USER
from tests.polling import until

PATH = "/accounts/acme/playground"
RUN = '{"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}'


async def test_calls_that_begin_together_are_counted_and_their_places_are_given_back(console, monkeypatch) -> None:
    running = 0

    async def endless(*_: Any) -> AsyncGenerator[dict[str, Any]]:
        nonlocal running
        running += 1
        try:
            yield {"request_id": "req_1"}
            await asyncio.Event().wait()
        finally:
            running -= 1

    monkeypatch.setattr(playground_runs, "_lines", endless)
    async with console() as c:
        browser = await c.as_("ann", acme="member")
        form = {"run": RUN, "xsrf": await browser.token()}
        asked = [asyncio.create_task(browser.ask("POST", PATH, form)) for _ in range(MOST_OF_USER + 4)]
        await until(lambda: running + sum(task.done() for task in asked) == len(asked))
        refused = [task.result() for task in asked if task.done()]
        assert [(one.status, "too many calls running" in one.text) for one in refused] == [(429, True)] * 4
        for task in asked:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await until(lambda: running == 0)
        again = asyncio.create_task(browser.ask("POST", PATH, form))
        await until(lambda: running == 1)
        again.cancel()
        with suppress(asyncio.CancelledError):
            await again
        await until(lambda: running == 0)

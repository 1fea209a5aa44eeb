"""Walks the route tables of the console and of the admin API, and counts what each request costs.

Every route has a request: a new one fails here until `Samples` can make what its path names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
from yarl import URL

from gateway.admin.user_rows import User
from gateway.admin_api.route import AdminRoute
from gateway.admin_api.table import ROUTES as ADMIN_ROUTES
from gateway.console.route import PageRoute
from gateway.console.table import ROUTES as PAGES
from tests.admin_api.samples import Samples as AdminSamples
from tests.console.client import ROOT, Browser
from tests.console.samples import OF_CALLERS
from tests.console.samples import Samples as PageSamples
from tests.installation.counts import Counts, least
from tests.installation.expected import JOBS
from tests.installation.installed import Installed

Costs = dict[str, Counts]


async def walk(at: Installed, wide: str) -> Costs:
    """The counts of every request by its name. `wide` is the id of a user of many accounts."""
    people = await at.console.services.people()
    operator = await at.console.user("root@example.com", role="operator")
    costs = Costs()
    for reader, user in (("operator", operator), ("wide", await people.users.show(ROOT, wide))):
        costs.update([found async for found in PageWalk(at, reader, user).costs()])
    costs.update([found async for found in routes(at)])
    return costs


class PageWalk:
    """Opens pages and sends forms of the console, as far as they are for the reader."""

    def __init__(self, at: Installed, reader: str, user: User) -> None:
        self._at = at
        self._reader = reader
        self._user = user
        self._samples = PageSamples(at.console)

    async def costs(self) -> AsyncIterator[tuple[str, Counts]]:
        """The counts by name."""
        lasting = await self._at.console.signed_in(self._user)
        token = await lasting.token()
        for route in PAGES:
            name = f"{self._reader}: {route.method} {route.path}"
            if name in JOBS or not self._is_for_reader(route):
                continue
            browser, xsrf = lasting, token
            if route.writes and route.audience in ("public", "signed_in"):  # it may end the session
                browser = await self._at.console.signed_in(self._user)
                xsrf = await browser.token()
            yield name, await self._ask(browser, route, xsrf)

    def _is_for_reader(self, route: PageRoute) -> bool:
        if self._reader == "operator":
            return route.path != OF_CALLERS
        return route.audience in ("signed_in", "member", "owner") and not route.writes

    async def _ask(self, browser: Browser, route: PageRoute, xsrf: str) -> Counts:
        sample = await self._samples.of(route, self._user)
        if "/playground/calls/" in sample.path:  # it waits, and meanwhile the gateway's own work is counted
            return least([await self._asked(browser, route.method, sample.path, None) for _ in range(3)])
        form = {"xsrf": xsrf, **sample.form} if route.writes else None
        return await self._asked(browser, route.method, sample.path, form)

    async def _asked(self, browser: Browser, method: str, path: str, form: dict[str, str] | None) -> Counts:
        await self._at.counter.begin()
        shown = await browser.ask(method, path, form)
        counts = await self._at.counter.end(len(shown.body))
        assert shown.status < 500 and shown.status not in (403, 429), (path, shown.status, shown.text)
        return counts


async def routes(at: Installed) -> AsyncIterator[tuple[str, Counts]]:
    """Routes of the admin API."""
    samples = AdminSamples(at.api)
    await at.api.as_operator()
    for route in ADMIN_ROUTES:
        name = f"API: {route.method} {route.path}"
        if name not in JOBS:
            yield name, await request(at, route, samples)
        if route.ends_token:
            await at.api.as_operator()


async def request(at: Installed, route: AdminRoute, samples: AdminSamples) -> Counts:
    """One request of the admin API."""
    sample = await samples.of(route)
    headers = {"Authorization": f"Bearer {at.api.token}", "Accept-Encoding": "identity", **sample.headers}
    url = URL(f"{at.console.url}/admin/v1{sample.path}")
    async with aiohttp.ClientSession(headers=headers) as session:
        await at.counter.begin()
        async with session.request(route.method, url, json=sample.body) as answer:
            body = await answer.read()
        counts = await at.counter.end(len(body))
    assert answer.status < 500 and answer.status not in (403, 429), (route.path, answer.status, body)
    return counts

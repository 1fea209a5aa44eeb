"""Every page of a person in a real browser: no fault, no foreign address, accessible, small, within the window.

Every control of a page is reached by Tab in one of the windows, and shows the focus then.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.console.table import ROUTES
from tests.console.client import PASSWORD, ROOT
from tests.console.opening import MODELS
from tests.console.samples import Samples
from tests.console.sights import furnished

pytestmark = pytest.mark.slow

MOST_BYTES = 100_000  # that a page and its files may transfer
#: Each colour scheme and each width once. The keyboard goes through the pages in turn: it takes half of the time.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
#: The windows for the keyboard; a low one has less room than the navigation needs.
WALKED: dict[str, Any] = {"light": {"width": 1280, "height": 450}, "narrow": LOOKS["narrow"]["viewport"]}
PROVIDER = """
[oidc.corp]
issuer = "https://login.example.com"
client_id = "gateway"
client_secret = "env:NOT_READ_HERE"
label = "Corp"
"""


@pytest.mark.gen_test(timeout=600)
@pytest.mark.timeout(660)
@pytest.mark.parametrize("look", LOOKS)
async def test_pages_are_accessible_small_and_fit_the_window(console: Any, tmp_path: Path, look: str) -> None:
    from tests.console.browser.axe import violations
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Keyboard

    settings = {"public_prices": True, "signup": "open"}
    async with console(models=MODELS + PROVIDER, **settings) as c, window(tmp_path / "profile", **LOOKS[look]) as w:
        user = await furnished(c)
        people = await c.services.people()
        await people.users.edit(ROOT, user.id, {"role": "operator"})  # so that all pages are for them
        user = await people.users.show(ROOT, user.id)
        samples, keyboard, faults = Samples(c), Keyboard(w.page), []
        public = [route for route in ROUTES if route.method == "GET" and route.audience == "public"]
        signed_in = [route for route in ROUTES if route.method == "GET" and route not in public]
        for number, route in enumerate([*public, None, *signed_in], list(LOOKS).index(look)):
            if route is None:
                await sign_in(w.page, c.url, user.email)
                continue
            sample = await samples.of(route, user)
            if (
                route.path == "/"
                or sample.path.endswith((".csv", ".json", "/callback"))
                or "/playground/calls/" in sample.path
                or "/files/" in sample.path
            ):
                continue  # no page
            transferred = await load(w, c.url + sample.path)
            faults += await violations(w.page)
            assert transferred < MOST_BYTES, sample.path
            assert await w.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), sample.path
            if number % len(LOOKS) == 0:
                await w.page.set_viewport_size(WALKED[look])
                faults += await keyboard.walk()
                await w.page.set_viewport_size(LOOKS[look]["viewport"])
        assert not faults, "\n".join(faults)
        assert w.faults == []
        assert all(address.startswith(c.url) for address in w.addresses)


async def sign_in(page: Any, url: str, email: str) -> None:
    await page.goto(f"{url}/sign-in")
    await page.get_by_label("E-mail").fill(email)
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await page.wait_for_url(re.compile(r"/(accounts/.|site$|profile$)"))


async def load(w: Any, url: str) -> int:
    """Open a page; the bytes that it and its files have, as they travel."""
    await w.page.goto(url)
    sizes = "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
    return int(await w.page.evaluate(f"{sizes}.reduce((sum, one) => sum + one.encodedBodySize + 300, 0)"))

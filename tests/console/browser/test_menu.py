"""The navigation in a real browser: a button opens it in a narrow window, and groups stay as the reader left them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser.test_looks import sign_in
from tests.console.client import PASSWORD

pytestmark = pytest.mark.slow
NARROW = {"width": 390, "height": 844}
WIDE = {"width": 1280, "height": 900}


@pytest.mark.holds("console.md#navigation-1")
@pytest.mark.parametrize("with_script", [True, False], ids=["script", "no script"])
async def test_button_opens_the_pages_of_a_narrow_window_by_keyboard(
    console: Any, tmp_path: Any, with_script: bool
) -> None:
    from tests.console.browser.axe import violations
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Keyboard, open_pages

    look = {"viewport": NARROW, "java_script_enabled": with_script}
    async with console() as c, window(tmp_path / "profile", **look) as w:
        user = await c.user("root@example.com", role="operator", acme="owner", password=PASSWORD)
        await sign_in(w.page, c.url, user.email)
        await w.page.goto(f"{c.url}/site")
        link = w.page.get_by_role("link", name="Audit trail")
        assert not await link.is_visible()
        if not with_script:  # the checks of the keyboard are scripts
            await w.page.get_by_role("button", name="Pages, here Overview: Home").click()
            await link.click()
            await w.page.wait_for_url("**/site/audit-trail")
            return
        keyboard = Keyboard(w.page)
        await open_pages(w.page, keyboard)
        assert await link.is_visible()
        assert await violations(w.page) == []
        assert await w.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await w.page.keyboard.press("Escape")
        assert not await link.is_visible()
        await open_pages(w.page, keyboard)
        await keyboard.follow(link)
        assert w.page.url.endswith("/site/audit-trail")
        await w.page.get_by_role("button", name="Pages, here System: Audit trail").wait_for()
        assert w.faults == []


@pytest.mark.holds("console.md#navigation-2")
async def test_closed_group_stays_closed_on_other_pages_and_opens_on_a_page_of_its_own(
    console: Any, tmp_path: Any
) -> None:
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Keyboard

    async with console() as c, window(tmp_path / "profile", viewport=WIDE) as w:
        user = await c.user("root@example.com", role="operator", password=PASSWORD)
        await sign_in(w.page, c.url, user.email)
        await w.page.goto(f"{c.url}/site")
        users = w.page.get_by_role("link", name="Users", exact=True)
        assert await users.is_visible()
        await Keyboard(w.page).press(w.page.locator(".side summary", has_text="People"))
        assert not await users.is_visible()
        await w.page.goto(f"{c.url}/site/models")
        assert not await users.is_visible()
        assert await w.page.get_by_role("link", name="Alerts", exact=True).is_visible()
        await w.page.goto(f"{c.url}/site/accounts")
        assert await users.is_visible()
        assert w.faults == []

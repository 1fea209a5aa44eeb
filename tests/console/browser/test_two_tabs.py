"""Two tabs of a real browser sign in at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.console.client import PASSWORD
from tests.console.test_two_tabs import with_code

pytestmark = pytest.mark.slow


async def test_two_tabs_are_asked_for_their_own_codes(console: Any, tmp_path: Path) -> None:
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "profile") as w:
        codes = {name: await with_code(c, name) for name in ("ann", "ben")}
        tabs = {"ann": w.page, "ben": await w.page.context.new_page()}
        for tab in tabs.values():
            await tab.goto(f"{c.url}/sign-in?next=/profile/second-factor")
        for name, tab in tabs.items():
            await tab.get_by_label("E-mail").fill(f"{name}@example.com")
            await tab.get_by_label("Password").fill(PASSWORD)
            await tab.get_by_role("button", name="Sign in", exact=True).click()
            await tab.wait_for_url("**/sign-in/code?**")
        for name, tab in tabs.items():
            await tab.get_by_label("The six digits").fill(codes[name])
            await tab.get_by_role("button", name="Go on").click()
            if name == "ben":  # the page is from before ann signed in
                assert "Send it again" in str(await tab.get_by_role("alert").text_content())
                await tab.get_by_label("The six digits").fill(codes[name])
                await tab.get_by_role("button", name="Go on").click()
            await tab.wait_for_url("**/profile/second-factor")
            assert await tab.locator(".who").get_attribute("title") == f"{name}@example.com"
        assert [fault for fault in w.faults if "403" not in fault] == []

"""The documentation in a real browser: lists in a wide and a narrow window, and the search, also without a script."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytestmark = pytest.mark.slow
NARROW = {"width": 390, "height": 844}
WIDE = {"width": 1280, "height": 800}
SHOWN = "(id) => document.querySelector(id).getBoundingClientRect().top"


async def test_lists_stay_beside_the_text_of_a_wide_window(console: Any, tmp_path: Any) -> None:
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "profile", viewport=WIDE) as w:
        await w.page.goto(f"{c.url}/docs/configuration#console")
        for name in ("#manual-pages", "#manual-contents", "#console"):
            assert 0 <= await w.page.evaluate(SHOWN, name) < 100, name
        await w.page.get_by_role("navigation", name="On this page").get_by_role("link", name="[log]").click()
        assert w.page.url.endswith("#log")
        await w.page.get_by_role("navigation", name="Documentation").get_by_role("link", name="Metrics").click()
        await w.page.wait_for_url("**/docs/metrics")
        assert w.faults == []


@pytest.mark.parametrize("with_script", [True, False], ids=["script", "no script"])
async def test_buttons_open_the_lists_of_a_narrow_window(console: Any, tmp_path: Any, with_script: bool) -> None:
    from tests.console.browser.axe import violations
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "p", viewport=NARROW, java_script_enabled=with_script) as w:
        await w.page.goto(f"{c.url}/docs/configuration")
        contents, pages = w.page.locator("#manual-contents"), w.page.locator("#manual-pages")
        assert not await contents.is_visible() and not await pages.is_visible()
        await w.page.get_by_role("button", name="On this page").click()
        assert await contents.is_visible()
        if with_script:
            assert await violations(w.page) == []
        await contents.get_by_role("link", name="[console]").click()
        assert w.page.url.endswith("#console")
        if with_script:  # without one, a tap beside it closes it
            assert not await contents.is_visible()
        await w.page.goto(f"{c.url}/docs/configuration")
        await w.page.get_by_role("button", name="All pages").click()
        await pages.get_by_role("link", name="Metrics", exact=True).click()
        await w.page.wait_for_url("**/docs/metrics")
        assert w.faults == []


@pytest.mark.parametrize("with_script", [True, False], ids=["script", "no script"])
async def test_search_finds_a_setting_and_leads_to_it(console: Any, tmp_path: Any, with_script: bool) -> None:
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "p", viewport=WIDE, java_script_enabled=with_script) as w:
        await w.page.goto(f"{c.url}/docs/prices")
        await w.page.get_by_label("Search the documentation").fill("public_url")
        await w.page.get_by_role("button", name="Search").click()
        await w.page.wait_for_url(re.compile(r"/docs/search\?q=public_url$"))
        await w.page.get_by_role("link", name="[console]").click()
        await w.page.wait_for_url("**/docs/configuration#console")
        if with_script:  # it searches while a person types
            await w.page.goto(f"{c.url}/docs/search")
            await w.page.get_by_label("Search").fill("rolling restart")
            await w.page.get_by_role("link", name="Rolling restart").first.wait_for()
        assert w.faults == []

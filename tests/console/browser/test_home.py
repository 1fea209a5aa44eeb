"""The charts of the home page in a real browser: calls, failures, and times to the first token."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser.test_looks import sign_in
from tests.console.client import PASSWORD
from tests.console.history import ago, history

pytestmark = pytest.mark.slow


async def test_chart_shows_calls_failures_and_times_by_keyboard_and_keeps_the_choice(
    console: Any, tmp_path: Any
) -> None:
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Keyboard

    async with console() as c, window(tmp_path / "profile") as w:
        user = await c.user("root@example.com", role="operator", password=PASSWORD)
        account = await history(c)
        for number in range(9):
            outcome = "ok" if number else "upstream_error"
            account.call(ago(hours=number), 1_000_000, provider="fake", outcome=outcome, first_token_ms=100 + number)
        account.flush()
        await sign_in(w.page, c.url, user.email)
        plot = w.page.locator(".plot")
        for page in ("/site", "/site/providers/fake"):
            await w.page.goto(c.url + page)
            await w.page.locator(".u-over").wait_for()
            series = w.page.locator(".u-legend .u-series")
            calls, failures, first = (
                w.page.get_by_role("radio", name=name, exact=True) for name in ("Calls", "Failures", "First token")
            )
            if page == "/site":
                assert await series.count() == 3  # and the time
                assert "calls" in (await plot.get_attribute("aria-label") or "")
                await Keyboard(w.page).reach(calls)
                await w.page.keyboard.press("ArrowRight")
                assert await failures.is_checked() and await series.count() == 2
                await w.page.keyboard.press("ArrowRight")
            assert await first.is_checked() and await series.count() == 3
            assert "first token" in (await plot.get_attribute("aria-label") or "")
        assert w.faults == []

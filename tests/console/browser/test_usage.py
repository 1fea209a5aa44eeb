"""The Usage page in a real browser: the chart shows spend or calls, the filters keep the focus; the rows of pages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser.test_looks import sign_in
from tests.console.client import PASSWORD
from tests.console.history import ago, history
from tests.console.sights import furnished
from tests.polling import until

pytestmark = pytest.mark.slow

USAGE = "/accounts/acme/usage"


@pytest.mark.holds("console.md#usage-and-overview-1")
async def test_chart_shows_spend_or_calls_by_keyboard_and_keeps_the_choice(console: Any, tmp_path: Any) -> None:
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Keyboard

    async with console() as c, window(tmp_path / "profile") as w:
        user = await c.user("ann@example.com", acme="owner", password=PASSWORD)
        account = await history(c)
        for number in range(1200):
            account.call(ago(hours=2), 1_000_000, model="tiny", outcome="upstream_error" if number else "ok")
        account.flush()
        await sign_in(w.page, c.url, user.email)

        async def hovered(figure: str) -> None:
            """The legend has this figure of tiny, while the pointer is over the last bar but one or two."""

            async def is_shown() -> bool:
                box = await w.page.locator(".u-over").bounding_box()
                assert box is not None
                for share in (0.87, 0.91, 0.95):  # two hours ago is one of the last three bars
                    await w.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
                    if figure in await w.page.locator(".u-legend .u-value").all_inner_texts():
                        return True
                return False

            await until(is_shown)

        await w.page.goto(f"{c.url}{USAGE}?range=24h")
        await hovered("1.2")
        await Keyboard(w.page).reach(w.page.get_by_role("radio", name="Spend"))
        await w.page.keyboard.press("ArrowRight")
        assert await w.page.get_by_role("radio", name="Calls").evaluate("one => one === document.activeElement")
        await hovered("1,200")
        assert await w.page.get_by_role("img", name="Stacked bars of the calls").count() == 1
        await w.page.locator("select[name=outcome]").select_option("upstream_error")
        await w.page.get_by_text("1,199 calls").wait_for()
        await hovered("1,199")
        await w.page.goto(f"{c.url}/accounts/acme?range=24h")
        assert await w.page.get_by_role("radio", name="Calls").is_checked()
        await hovered("1,200")
        assert w.faults == []


async def test_outcomes_follow_the_other_filters_and_keep_the_focus(console: Any, tmp_path: Any) -> None:
    from tests.console.browser.chromium import window

    async with console() as c, window(tmp_path / "profile") as w:
        user = await furnished(c)
        account = await history(c)
        account.call(ago(minutes=5), 1, model="secret", outcome="content_filter")
        account.flush()
        await sign_in(w.page, c.url, user.email)
        await w.page.goto(c.url + USAGE)
        outcomes = w.page.locator("select[name=outcome]")

        async def choices() -> list[str]:
            return [str(one).partition(":")[0] for one in await outcomes.locator("option").all_inner_texts()]

        async def are(wanted: list[str]) -> None:
            async def are_there() -> bool:
                return await choices() == wanted

            await until(are_there)

        await are(["all", "content_filter", "ok", "upstream_timeout"])
        await w.page.locator("select[name=model]").select_option("secret")
        await are(["all", "content_filter"])
        await outcomes.focus()
        await outcomes.select_option("content_filter")
        await w.page.wait_for_url("**outcome=content_filter**")
        await w.page.get_by_text("1 call,").wait_for()
        assert await outcomes.evaluate("one => one === document.activeElement")
        assert await outcomes.input_value() == "content_filter" and w.faults == []

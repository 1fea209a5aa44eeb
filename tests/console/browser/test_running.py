"""The page of running calls renews its rows; who is there by keyboard keeps the place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser.test_looks import sign_in
from tests.console.client import PASSWORD
from tests.polling import until

pytestmark = pytest.mark.slow


async def test_focus_stays_on_a_call_while_the_rows_are_renewed(console: Any, tmp_path: Any) -> None:
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Keyboard

    async with console() as c, window(tmp_path / "profile") as w:
        for number in (1, 2):
            c.workers.start(f"req_{number}", "acme")
        user = await c.user("root@example.com", role="operator", password=PASSWORD, acme="owner")
        await sign_in(w.page, c.url, user.email)
        await w.page.clock.install()
        await w.page.goto(f"{c.url}/site/running")
        await Keyboard(w.page).reach(w.page.get_by_role("button", name="Cancel req_2"))
        c.workers.start("req_3", "acme")
        await w.page.clock.fast_forward(6000)
        await w.page.get_by_role("button", name="Cancel req_3").wait_for()

        async def focused() -> str:
            return str(await w.page.evaluate("document.activeElement.getAttribute('aria-label')"))

        async def is_there() -> bool:
            return await focused() == "Cancel req_2"

        await until(is_there)
        await Keyboard(w.page).follow(w.page.get_by_role("button", name="Cancel req_2"))
        assert set(c.workers.calls) == {"req_1", "req_3"} and w.faults == []

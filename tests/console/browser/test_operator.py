"""An operator in a real browser: a refund, and a new configuration that is checked and reloaded."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.testing.ports import free_ports
from tests.console.browser.test_story import MODELS, NARROW, WIDE
from tests.polling import until
from tests.processes.conftest import Yard

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("look", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_operator_refunds_a_call_and_takes_a_new_configuration_into_use(
    yard: Yard, tmp_path: Any, look: dict[str, Any]
) -> None:
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Pointer, open_pages

    [port] = free_ports(1)
    gateway = yard.make(MODELS, console_port=port)
    await gateway.started()
    made = await gateway.command("users", "create", "root@example.com", "--operator")
    gateway.create_key()
    assert (await gateway.chat()).status == 200
    async with window(tmp_path / "operator", **look) as w:
        page = w.page
        await page.goto(made["link"])
        await page.get_by_role("button", name="Sign in").first.click()

        async def is_found() -> bool:
            await page.goto(f"http://127.0.0.1:{port}/site/calls")
            return await page.locator("tbody tr").filter(has_text="test").count() == 1

        await until(is_found)
        await page.get_by_role("link", name=re.compile("Refund req_")).click()
        await page.get_by_role("button", name="Give it back").click()
        await page.get_by_text("of the request are given back").wait_for()

        config = gateway.config.read_text()
        gateway.config.write_text(config + '\n[models.added]\nprovider = "fake"\nfree = true\n')
        await open_pages(page, Pointer(page))
        await page.get_by_role("link", name="Configuration").click()
        assert "models.added" not in await page.locator("main").inner_text()
        await page.get_by_role("button", name="Check the file on the disk").click()
        await page.get_by_text("0 faults").wait_for(timeout=60_000)
        await page.get_by_role("button", name="Reload").click()
        await page.get_by_text("is in use now").wait_for()
        assert "[models.added]" in await page.locator("main").inner_text()
        await open_pages(page, Pointer(page))
        await page.get_by_role("link", name="Plugins").click(timeout=60_000)
        assert "built-in" in await page.locator("main").inner_text()

        await open_pages(page, Pointer(page))
        await page.get_by_role("link", name="Audit trail").click()
        text = await page.locator("main").inner_text()
        assert "accounts.refund" in text and "configuration.reload" in text and "root@example.com" in text
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert w.faults == []

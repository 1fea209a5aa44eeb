"""An operator in a real browser: from the link to the audit trail, over an account, a credit, a user and a reload."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.testing.ports import free_ports
from tests.console.browser.test_member import MODELS, PASSWORD, in_both_looks, shell
from tests.polling import until
from tests.processes.conftest import Yard

pytestmark = pytest.mark.slow


@pytest.mark.gen_test(timeout=240)
@in_both_looks
async def test_operator_opens_an_account_for_a_user_whose_calls_end_in_the_audit_trail(
    yard: Yard, tmp_path: Any, look: dict[str, Any]
) -> None:
    from tests.console.browser.chromium import window

    [port] = free_ports(1)
    gateway = yard.make(MODELS, console_port=port)
    await gateway.started()
    made = await gateway.command("users", "create", "root@example.com", "--operator")
    async with window(tmp_path / "operator", **look) as w, window(tmp_path / "user", **look) as other:
        page, user = w.page, other.page
        await page.goto(made["link"])
        await page.get_by_role("button", name="Sign in").first.click()
        await page.get_by_role("link", name="Accounts", exact=True).click()
        await page.get_by_role("link", name="Create an account").click()
        await page.get_by_label("Name").fill("acme")
        await page.get_by_role("button", name="Create the account").click()
        await page.get_by_label("Amount to add").fill("25")
        await page.get_by_role("button", name="Add the credit").click()
        await page.get_by_text("25 were added").wait_for()
        await page.get_by_role("link", name="Invite").click()
        await page.get_by_label("E-mail").fill("ann@example.com")
        await page.get_by_role("button", name="Invite").click()
        link = await page.locator("#link").inner_text()
        await page.reload()
        assert link not in await page.content() and page.url.endswith("/site/accounts/acme")

        await user.goto(link)
        await user.get_by_label("New password").fill(PASSWORD)
        await user.get_by_label("The same again").fill(PASSWORD)
        await user.get_by_role("button", name="Accept and sign in").click()
        await user.get_by_role("link", name="API keys").click()
        await user.get_by_role("link", name="Create a key").click()
        await user.get_by_label("Name").fill("laptop")
        await user.get_by_role("button", name="Create the key").click()
        assert '"chat.completion"' in await shell(await user.locator("pre").first.inner_text())

        async def is_found() -> bool:
            await page.goto(f"http://127.0.0.1:{port}/site/calls")
            return await page.locator("tbody tr").filter(has_text="acme").count() == 1

        await until(is_found, within=3.0)
        await page.get_by_role("link", name=re.compile("Refund req_")).click()
        await page.get_by_role("button", name="Give it back").click()
        await page.get_by_text("of the request are given back").wait_for()

        config = gateway.config.read_text()
        gateway.config.write_text(config + '\n[models.added]\nprovider = "fake"\nfree = true\n')
        await page.get_by_role("link", name="Configuration").click()
        assert "models.added" not in await page.locator("main").inner_text()
        await page.get_by_role("button", name="Check the file on the disk").click()
        await page.get_by_text("0 faults").wait_for(timeout=60_000)
        await page.get_by_role("button", name="Reload").click()
        await page.get_by_text("is in use now").wait_for()
        assert "[models.added]" in await page.locator("main").inner_text()
        await page.get_by_role("link", name="Plugins").click(timeout=60_000)
        assert "built-in" in await page.locator("main").inner_text()

        await page.get_by_role("link", name="Audit trail").click()
        text = await page.locator("main").inner_text()
        for action in ("accounts.create", "accounts.credit", "invitations.create", "invitations.accept", "keys.create"):
            assert action in text
        assert "accounts.refund" in text and "configuration.reload" in text and "root@example.com" in text
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert w.faults == [] and other.faults == []

"""The story of a key in a real browser: an operator opens an account, a user calls with a key of it and revokes it.

It is told once. It runs with a pointer in a narrow window, and by the keyboard alone in a wide one.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import Any

import pytest

from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Yard

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
MODELS = """
[providers.fake]
plugin = "fake"

[models.quick]
provider = "fake"
max_output_tokens = 64
price = { input = 1, output = 2, currency = "USD" }
"""
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
NARROW: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
TRAIL = (
    "accounts.create", "accounts.credit", "invitations.create", "invitations.accept", "keys.create", "keys.revoke",
)  # fmt: skip


@pytest.mark.parametrize(
    ("look", "by_keyboard"),
    [(NARROW, False), (WIDE, True)],
    ids=["narrow", "wide-keyboard"],
)
async def test_key_is_created_used_and_revoked_from_the_link_of_the_operator_to_the_audit_trail(
    yard: Yard, tmp_path: Any, look: dict[str, Any], by_keyboard: bool
) -> None:
    from tests.console.browser.axe import violations
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import Hands, Keyboard, Pointer, open_pages

    [port] = free_ports(1)
    gateway = yard.make(MODELS, console_port=port)
    await gateway.started()
    made = await gateway.command("users", "create", "root@example.com", "--operator")
    may_copy = {"permissions": ["clipboard-read", "clipboard-write"]}
    async with (
        window(tmp_path / "operator", **look) as w,
        window(tmp_path / "user", **look, **may_copy) as other,
    ):
        page, user = w.page, other.page
        operates: Hands = Keyboard(page) if by_keyboard else Pointer(page)
        uses: Hands = Keyboard(user) if by_keyboard else Pointer(user)

        # The operator signs in, creates an account, credits it and invites a user.
        await page.goto(made["link"])
        await operates.follow(page.get_by_role("button", name="Sign in").first)
        await open_pages(page, operates)
        await operates.follow(page.get_by_role("link", name="Accounts", exact=True))
        await operates.follow(page.get_by_role("link", name="Create an account"))
        await operates.write(page.get_by_label("Name"), "acme")
        await operates.follow(page.get_by_role("button", name="Create the account"))
        await operates.write(page.get_by_label("Amount to add"), "25")
        await operates.follow(page.get_by_role("button", name="Add the credit"))
        await page.get_by_text("25 were added").wait_for()
        await operates.follow(page.get_by_role("link", name="Invite"))
        await operates.write(page.get_by_label("E-mail"), "ann@example.com")
        await operates.follow(page.get_by_role("button", name="Invite"))
        link = await page.locator("#link").inner_text()
        assert await violations(page) == []
        await page.reload()
        assert link not in await page.content() and page.url.partition("#")[0].endswith("/site/accounts/acme")

        # The user accepts, sets a password and creates a key, which is shown once.
        await user.goto(link)
        await uses.write(user.get_by_label("Your name"), "Ann")
        await uses.write(user.get_by_label("New password"), PASSWORD)
        await uses.write(user.get_by_label("The same again"), PASSWORD)
        await uses.follow(user.get_by_role("button", name="Accept and sign in"))
        await open_pages(user, uses)
        await uses.follow(user.get_by_role("link", name="API keys"))
        await uses.follow(user.get_by_role("link", name="Create a key"))
        await uses.write(user.get_by_label("Name"), "my laptop")
        await uses.follow(user.get_by_role("button", name="Create the key"))
        key = (await user.locator("#key").inner_text()).strip()
        assert re.fullmatch(r"sk-[\w-]{43}", key)
        command = await user.locator("pre").first.inner_text()
        await uses.press(user.get_by_role("button", name="Copy").first)
        await user.get_by_role("button", name="Copied").wait_for()
        assert await user.evaluate("navigator.clipboard.readText()") == key
        assert await violations(user) == []
        await user.reload()
        assert key not in await user.content() and "my laptop" in await user.content()
        assert user.url.partition("#")[0].endswith("/accounts/acme/keys")

        # The shown command calls; soon the call is in the usage, with its cost.
        await open_pages(user, uses)
        await uses.follow(user.get_by_role("link", name="Usage"))
        assert await user.locator("#results tbody tr").count() == 0
        answer = await shell(command)
        assert '"chat.completion"' in answer and str(gateway.port) in command

        async def in_usage() -> bool:
            # The sums of the chart are read before the calls: a call may be imported in between.
            await user.reload()
            is_listed = await user.locator("#results tbody tr").filter(has_text="my laptop").count() > 0
            return is_listed and await user.locator(".plot").count() > 0

        await until(in_usage)
        await user.locator(".plot canvas").wait_for()
        await uses.follow(user.locator("#results tbody tr a").last)
        text = await user.locator("main").inner_text()
        assert "Cost breakdown" in text and "Charged" in text and "my laptop" in text

        # The user revokes the key: the same command is refused.
        await open_pages(user, uses)
        await uses.follow(user.get_by_role("link", name="API keys"))
        await uses.follow(user.get_by_role("link", name="Revoke my laptop"))
        await uses.follow(user.get_by_role("button", name="Revoke the key"))
        assert "is revoked" in await user.locator("main").inner_text()
        assert "invalid_api_key" in await shell(command)
        assert (await shell(f"{command} -s -o /dev/null -w '%{{http_code}}'")).strip() == "401"

        # The operator finds all of it.
        await open_pages(page, operates)
        await operates.follow(page.get_by_role("link", name="Audit trail"))
        text = await page.locator("main").inner_text()
        assert [action for action in TRAIL if action not in text] == []
        assert "root@example.com" in text and "ann@example.com" in text and key not in text
        for one in (w, other):
            assert await one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert one.faults == []
            assert {address.partition("://")[2].partition("/")[0] for address in one.addresses} == {f"127.0.0.1:{port}"}


async def shell(command: str) -> str:
    """What a shell prints for a command that a page shows."""
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", command], capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout

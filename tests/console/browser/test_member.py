"""A member in a real browser: a key, a call with it, the call in the usage, and the end of the key."""

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

in_both_looks = pytest.mark.parametrize(
    "look",
    [{"viewport": {"width": 1280, "height": 900}}, {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}],
    ids=["wide", "narrow"],
)


@pytest.mark.gen_test(timeout=180)
@in_both_looks
async def test_member_creates_a_key_calls_with_it_and_sees_the_call_in_the_usage(
    yard: Yard, tmp_path: Any, look: dict[str, Any]
) -> None:
    from tests.console.browser.chromium import window

    [port] = free_ports(1)
    gateway = yard.make(MODELS, console_port=port)
    await gateway.started()
    await gateway.command("accounts", "create", "acme", "--balance", "25")
    invited = await gateway.command("users", "invite", "ann@example.com", "--account", "acme", "--no-mail")
    async with window(tmp_path / "profile", **look) as w:
        page = w.page
        await page.goto(invited["link"])
        await page.get_by_label("Your name").fill("Ann")
        await page.get_by_label("New password").fill(PASSWORD)
        await page.get_by_label("The same again").fill(PASSWORD)
        await page.get_by_role("button", name="Accept and sign in").click()
        await page.get_by_role("link", name="API keys").click()
        await page.get_by_role("link", name="Create a key").click()
        await page.get_by_label("Name").fill("my laptop")
        await page.get_by_role("button", name="Create the key").click()
        key = (await page.locator("#key").inner_text()).strip()
        assert re.fullmatch(r"sk-[\w-]{43}", key)
        command = await page.locator("pre").first.inner_text()
        await page.reload()
        assert key not in await page.content() and "my laptop" in await page.content()
        assert page.url.endswith("/accounts/acme/keys")

        answer = await shell(command)
        assert '"chat.completion"' in answer and str(gateway.port) in command
        before = asyncio.get_running_loop().time()

        async def in_usage() -> bool:
            await page.goto(f"http://127.0.0.1:{port}/accounts/acme/usage")
            return await page.locator("#results tbody tr").filter(has_text="my laptop").count() > 0

        await until(in_usage, within=3.0)
        assert asyncio.get_running_loop().time() - before < 3.5
        await page.locator(".plot canvas").wait_for()
        await page.locator("#results tbody tr a").last.click()
        text = await page.locator("main").inner_text()
        assert "Cost breakdown" in text and "Charged" in text and "my laptop" in text

        await page.get_by_role("link", name="API keys").click()
        await page.get_by_role("link", name="Revoke my laptop").click()
        await page.get_by_role("button", name="Revoke the key").click()
        assert "is revoked" in await page.locator("main").inner_text()
        assert "invalid_api_key" in await shell(command)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert w.faults == []
        assert {address.partition("://")[2].partition("/")[0] for address in w.addresses} == {f"127.0.0.1:{port}"}


async def shell(command: str) -> str:
    """What a shell prints for a command that a page shows."""
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", command], capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout

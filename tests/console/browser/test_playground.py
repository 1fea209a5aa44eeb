"""The playground in a browser: answers come token by token, Stop bills what was delivered, costs are the ledger's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Yard

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.slow

PASSWORD = "correct horse battery"
WORDS = 30
HOSTILE = "</p><img src=x onerror=alert(1)>end"
MODELS = f"""
[providers.fake]
plugin = "fake"

[providers.fake.models.slow]
text = "{"word " * WORDS}{HOSTILE}"
interval = 0.05

[providers.fake.models.endless]
text = "on and on "
interval = 0.05
endless = true

[models.slow]
provider = "fake"
max_output_tokens = 500
price = {{ input = 1, output = 2, currency = "USD" }}

[models.endless]
provider = "fake"
max_output_tokens = 5000
price = {{ input = 1, output = 2, currency = "USD" }}
"""


async def test_answers_stream_and_cost_what_the_ledger_says_also_after_stop(yard: Yard, tmp_path: Any) -> None:
    from tests.console.browser.chromium import window
    from tests.console.browser.hands import HAS_FOCUS

    [port] = free_ports(1)
    gateway = yard.make(MODELS, console_port=port)
    await gateway.started()
    await gateway.command("accounts", "create", "acme", "--balance", "25")
    invited = await gateway.command("users", "invite", "ann@example.com", "--account", "acme", "--no-mail")
    async with window(tmp_path / "profile", viewport={"width": 1280, "height": 900}) as w:
        page = w.page
        await page.goto(invited["link"])
        await page.get_by_label("New password").fill(PASSWORD)
        await page.get_by_label("The same again").fill(PASSWORD)
        await page.get_by_role("button", name="Accept and sign in").click()
        await page.get_by_role("link", name="Playground").click()
        await page.get_by_label("Model").first.select_option("slow")

        await page.get_by_label("Message", exact=True).fill("Hello <i>you</i>")
        await page.get_by_role("button", name="Send").press("Enter")
        answer = page.locator(".answer").first
        await page.locator(".answer:not(:empty)").wait_for()
        early = await answer.inner_text()
        assert await page.get_by_role("button", name="Send").evaluate(HAS_FOCUS)
        assert "end" not in early  # the first words are there before the last one
        await page.locator(".foot[data-cost]").wait_for()
        assert (await answer.inner_text()).strip().endswith(HOSTILE)
        assert await page.locator("main img").count() == 0
        assert (await page.locator(".foot").first.inner_text()).count("tokens/s") == 1
        assert "failed in the console" not in gateway.text
        costs = [await page.locator(".foot").first.get_attribute("data-cost")]

        await page.get_by_role("button", name="Compare another model").click()
        await page.get_by_label("Model").nth(1).select_option("endless")
        await page.get_by_role("button", name="Remove").first.press("Enter")
        assert await page.get_by_role("button", name="Compare another model").evaluate(HAS_FOCUS)
        await page.get_by_label("Message", exact=True).fill("Go on")
        await page.keyboard.press("Control+Enter")
        await page.locator(".answer", has_text="on and on on and on").wait_for()
        await page.get_by_role("button", name="Stop").click()
        await page.locator(".foot[data-cost]").wait_for()
        foot = await page.locator(".foot").first.inner_text()
        assert foot.startswith("stopped")
        costs.append(await page.locator(".foot").first.get_attribute("data-cost"))

        lines: list[dict[str, Any]] = []

        async def charged() -> bool:
            nonlocal lines
            lines = [line for line in await gateway.command("usage", "list", "acme") if line["kind"] == "use"]
            return len(lines) == 2

        await until(charged, within=20.0)
        assert sorted(line["amount"] for line in lines) == sorted(f"-{cost}" for cost in costs)
        stopped = next(line for line in lines if line["model"] == "endless")
        assert stopped["outcome"] == "client_closed" and 0 < stopped["usage"]["out_text"] < 2000

        await page.get_by_text("As code").click()
        code = await page.locator("#code-curl").inner_text()
        assert json.loads(code.partition("-d '")[2].rstrip("'"))["model"] == "endless"
        assert str(gateway.port) in code
        keys = await gateway.command("keys", "list", "acme")
        assert [key["name"] for key in keys] == ["Playground"]
        await page.get_by_role("link", name="the call").first.click()
        assert "Cost breakdown" in await page.locator("main").inner_text()
        await typed_key_stays_in_the_browser(page)
        assert w.faults == []


async def typed_key_stays_in_the_browser(page: Page) -> None:
    """On the page Connect, a key that is typed is put into the texts, and nothing is sent."""
    await page.get_by_role("link", name="Connect", exact=True).click()
    await page.wait_for_load_state("networkidle")
    sent = list[str]()
    page.on("request", lambda request: sent.append(request.url))
    await page.get_by_label("Key", exact=True).press_sequentially("sk-$&-typed")
    assert "ANTHROPIC_AUTH_TOKEN='sk-$&-typed'" in await page.locator("#shell-claude-code").inner_text()
    assert 'apiKey: "sk-$&-typed"' in await page.locator("#file-openai-node").inner_text()
    await page.get_by_label("Key", exact=True).fill("")
    assert "sk-$&-typed" not in await page.locator("main").inner_text()
    assert sent == []

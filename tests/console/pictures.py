"""Makes the pictures of the console in docs/pictures: `python -m tests.console.pictures [FOLDER]`.

It starts the demo in a folder of its own, signs in by the printed link, and takes a picture of each page in light, in
dark and in a window of 390 pixels. It needs Playwright and a Chromium.
"""

from __future__ import annotations

import asyncio
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Page

from tests.console.browser.chromium import window
from tests.polling import until
from tests.processes.demo import Demo, link_in

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
HIGHEST = {"light": 1000, "dark": 1000, "narrow": 1200}  # pixels; a longer page is cut there
QUALITY = 80  # of WebP, in percent
QUESTION = "Which three words say what an API gateway does?"

LINES = 500  # in the history, once it is imported

Prepare = Callable[[Page], Awaitable[None]]


async def nothing(page: Page) -> None:
    """The page is as it was loaded."""


async def ask_two_models(page: Page) -> None:
    """Two answers in the playground."""
    await page.get_by_role("button", name="Compare another model").click()
    await page.get_by_label("Message", exact=True).fill(QUESTION)
    await page.get_by_role("button", name="Send").click()
    await page.locator(".foot[data-cost]").nth(1).wait_for()


def pages(call: str) -> dict[str, tuple[str, Prepare]]:
    """The pages by the name of their picture, each with its path and what is done there; `call` is the id of one."""
    return {
        "home": ("/site?range=7d", nothing),
        "provider": ("/site/providers/fake?range=7d", nothing),
        "overview": ("/accounts/demo?range=7d", nothing),
        "keys": ("/accounts/demo/keys", nothing),
        "key": ("/accounts/demo/keys/new", create_key),
        "usage": ("/accounts/demo/usage?range=7d", nothing),
        "call": (f"/accounts/demo/usage/{call}", nothing),
        "prices": ("/accounts/demo-partner/prices", nothing),
        "playground": ("/accounts/demo/playground", ask_two_models),
        "accounts": ("/site/accounts", nothing),
        "account": ("/site/accounts/demo-partner", nothing),
        "models": ("/site/models", nothing),
        "calls": ("/site/calls", nothing),
        "reports": ("/site/reports?range=7d&group_by=model", nothing),
        "price": ("/site/accounts/demo-partner/price?model=fake-chat", nothing),
    }


async def create_key(page: Page) -> None:
    """The one page that shows the text of a key. The key is revoked with the demo, which is thrown away."""
    await page.get_by_label("Name", exact=True).fill("my program")
    await page.get_by_role("button", name="Create the key").click()
    await page.locator("pre").first.wait_for()


async def take(page: Page, file: Path, highest: int) -> None:
    """Write a picture of the page, as wide as the window."""
    await page.wait_for_load_state("networkidle")
    height = min(await page.evaluate("document.documentElement.scrollHeight"), highest)
    width = await page.evaluate("innerWidth")
    session = await page.context.new_cdp_session(page)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    options = {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True}
    file.write_bytes(b64decode((await session.send("Page.captureScreenshot", options))["data"]))
    await session.detach()


async def pictures(target: Path, look: str, folder: Path) -> None:
    """Start a demo in the folder, and write the pictures of one look."""
    demo = Demo(folder)
    async with demo.started() as text, window(folder / "profile", **LOOKS[look]) as w:
        await until(lambda: demo.command("audit")["history_lines"] > LINES, within=30.0)
        await until(lambda: demo.command("history", "refusals", "demo", "--since", "8d"), within=30.0)
        await w.page.goto(f"{demo.console}/sign-in")
        await take(w.page, target / f"sign-in-{look}.webp", HIGHEST[look])
        await w.page.goto(demo.console + link_in(text))
        await w.page.get_by_role("button", name="Sign in", exact=True).click()
        await w.page.wait_for_url("**/site")
        calls = demo.command("usage", "list", "demo")
        longest = max(calls, key=lambda call: call["usage"].get("in_text", 0))["request_id"]
        for name, (path, prepare) in pages(longest).items():
            await w.page.goto(demo.console + path)
            await prepare(w.page)
            await take(w.page, target / f"{name}-{look}.webp", HIGHEST[look])


def main(target: Path) -> None:
    """Write all pictures; each look has a demo of its own, so that all show the same."""
    target.mkdir(parents=True, exist_ok=True)
    for look in LOOKS:
        with TemporaryDirectory() as folder:
            asyncio.run(pictures(target, look, Path(folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

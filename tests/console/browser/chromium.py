"""A real browser: the system's Chromium, driven by Playwright, and what it complained about."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Page, async_playwright

#: The headless shell has the same engine and takes two thirds of the processor time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Milliseconds that an action of the browser may take. While 14 other processes were busy, a page took more than 10,000.
WAIT = 60_000


def chromium_path() -> str:
    """The path of the program; empty without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


class Window:
    """A page of the browser, the addresses that it loaded, and the faults that it logged."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        self.addresses: list[str] = []
        page.on("console", lambda message: self._log(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.addresses.append(request.url))

    def _log(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(text)


@asynccontextmanager
async def window(folder: Path, **options: Any) -> AsyncIterator[Window]:
    """A window with an empty profile in `folder`; `options` are those of Playwright's context."""
    async with async_playwright() as playwright:
        context: BrowserContext = await playwright.chromium.launch_persistent_context(
            str(folder), executable_path=chromium_path(), headless=True, args=list(FLAGS), **options
        )
        try:
            context.set_default_timeout(WAIT)
            yield Window(context.pages[0] if context.pages else await context.new_page())
        finally:
            await context.close()


@asynccontextmanager
async def windows() -> AsyncIterator[Callable[[], Awaitable[Window]]]:
    """Opens windows of one browser, each with cookies of its own: that costs less than a browser for each."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=list(FLAGS))

        async def opened() -> Window:
            context = await browser.new_context()
            context.set_default_timeout(WAIT)
            return Window(await context.new_page())

        try:
            yield opened
        finally:
            await browser.close()

"""What axe-core finds on a page."""

from __future__ import annotations

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page

SERIOUS = ("serious", "critical")


async def violations(page: Page) -> list[str]:
    """The serious and critical findings, each with the rule and the element."""
    found = await Axe().run(page)
    return [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found.response["violations"]
        if one["impact"] in SERIOUS
    ]

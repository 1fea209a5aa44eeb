"""What axe-core finds on a page."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page

#: The serious and critical findings alone: what axe tells of the rest is much, and takes longer to send than to find.
FIND = """; axe.run({resultTypes: ["violations"], selectors: false}).then(({violations}) => violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`))"""


async def violations(page: Page) -> list[str]:
    """The serious and critical findings, each with the rule and the element."""
    return [f"{page.url}: {one}" for one in await page.evaluate(AXE_SCRIPT + FIND)]

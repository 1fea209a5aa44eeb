"""Two ways to use a page: with a pointer, and by the keyboard alone. A story is told once, and runs with both.

The keyboard reaches each element as a person does: by Tab from where the focus is. Each element that gets the focus on
the way must be in view, must not be covered, and must show the focus. Else the story fails.
"""

from __future__ import annotations

import re
from typing import Protocol

from playwright.async_api import Locator, Page

MOST_TABS = 150  # to one element
#: What is wrong with the element that has the focus; "" for nothing, or while no element has it.
PROBLEM = """() => {
  const one = document.activeElement;
  if (one === document.body || one === null) return "";
  const name = one.outerHTML.slice(0, 150), style = getComputedStyle(one), box = one.getBoundingClientRect();
  if (one.tabIndex > 0) return `a tabindex of its own: ${name}`;
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) return `no visible focus: ${name}`;
  if (box.width < 2 || box.height < 2) return `the focus on nothing that can be seen: ${name}`;
  const left = Math.max(box.left, 0), right = Math.min(box.right, innerWidth);
  const top = Math.max(box.top, 0), bottom = Math.min(box.bottom, innerHeight);
  if (right - left < 2 || bottom - top < 2) return `the focus out of view: ${name}`;
  const seen = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  if (!one.contains(seen) && !seen?.contains(one)) return `covered by ${seen?.outerHTML.slice(0, 150)}: ${name}`;
  return "";
}"""
#: The links and buttons around the content; many pages have the same.
AROUND = """() => [...document.querySelectorAll("a[href], button, summary")].filter((one) => !one.closest("main"))
  .map((one) => one.getAttribute("href") ?? one.textContent).join(" ")"""
#: The controls of a part that a person can see and use, as far as Tab has not been there (`walk` marks them).
MISSED = """(part) => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((one) => one.closest(part) && !one.disabled && one.type !== "hidden" && one.checkVisibility())
  .filter((one) => !one.dataset.reached)
  .filter((one) => one.type !== "radio" || !document.querySelector(`input[name="${one.name}"][data-reached]`))
  .map((one) => `not reached by Tab: ${one.outerHTML.slice(0, 150)}`)"""
#: What is wrong with the element that has the focus; null where Tab does not go on. A date has a stop for each part.
STEP = f"""() => {{
  const one = document.activeElement, stops = Number(one.dataset.reached ?? 0);
  one.dataset.reached = stops + 1;
  return one !== document.body && stops < (one.type === "date" ? 4 : 1) ? ({PROBLEM})() : null;
}}"""
HAS_FOCUS = "one => one === document.activeElement"


class Hands(Protocol):
    """What a person does on a page."""

    async def write(self, field: Locator, text: str) -> None:
        """Replace the text of a field."""

    async def press(self, control: Locator) -> None:
        """Use a button that leaves the page as it is."""

    async def follow(self, control: Locator) -> None:
        """Use a link, or the button of a form, and get the next page."""


async def open_pages(page: Page, hands: Hands) -> None:
    """Open the navigation, where a narrow window has a button for it."""
    button = page.get_by_role("button", name=re.compile("^Pages"))
    if await button.is_visible():
        await hands.press(button)


class Pointer:
    """A mouse, or a finger."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def write(self, field: Locator, text: str) -> None:
        await field.fill(text)

    async def press(self, control: Locator) -> None:
        await control.click()

    async def follow(self, control: Locator) -> None:
        async with self._page.expect_navigation():
            await control.click()


class Keyboard:
    """Tab, Enter and typing."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._walked: set[str] = set()

    async def write(self, field: Locator, text: str) -> None:
        await self.reach(field)
        await self._page.keyboard.press("Control+A")
        await self._page.keyboard.type(text)

    async def press(self, control: Locator) -> None:
        await self.reach(control)
        await self._page.keyboard.press("Enter")

    async def follow(self, control: Locator) -> None:
        await self.reach(control)
        async with self._page.expect_navigation():
            await self._page.keyboard.press("Enter")

    async def walk(self) -> list[str]:
        """Move the focus over the whole page; what is wrong with an element on the way, and what was not reached.

        What is around the content of an earlier page, too, is left out.
        """
        around, faults, part = await self._page.evaluate(AROUND), [], "body"
        if around in self._walked:
            part = "main"
            await self._page.locator("main").focus()
            await self._page.keyboard.press("Tab")
        else:
            self._walked.add(around)
            await self._page.locator(".skip").focus()  # the first element of each page
        while (problem := await self._page.evaluate(STEP)) is not None:
            if problem:
                faults.append(f"{self._page.url}: {problem}")
            await self._page.keyboard.down("Tab")  # as it repeats while it is held: half of the events
        await self._page.keyboard.up("Tab")
        return [*faults, *(f"{self._page.url}: {one}" for one in await self._page.evaluate(MISSED, part))]

    async def reach(self, wanted: Locator) -> None:
        """Move the focus to an element; on a page that was just loaded, by the link over the navigation."""
        await wanted.wait_for()
        if await self._is_at_start() and await wanted.evaluate("one => one.closest('main') !== null"):
            await self._tab()
            assert await self._page.locator(".skip").evaluate(HAS_FOCUS), "the first Tab leads to the skip link"
            await self._page.keyboard.press("Enter")
            assert await self._page.locator("main").evaluate(HAS_FOCUS), "the skip link leads to the content"
        for _ in range(MOST_TABS):
            if await wanted.evaluate(HAS_FOCUS):
                return
            await self._tab()
        raise AssertionError(f"Tab does not lead to {await wanted.evaluate('one => one.outerHTML')}")

    async def _is_at_start(self) -> bool:
        return bool(await self._page.evaluate("document.activeElement === document.body"))

    async def _tab(self) -> None:
        await self._page.keyboard.press("Tab")
        assert not (problem := await self._page.evaluate(PROBLEM)), f"{self._page.url}: {problem}"

"""The browser of an earlier session signs in while strangers have used up the attempts for the e-mail."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.people.sign_in_limits import PER_SUBJECT
from tests.console.client import PASSWORD

KNOWN = "gateway-known-browser"


@pytest.mark.holds("people.md#signing-in-1", "security.md#the-console-4")
async def test_browser_of_an_earlier_session_signs_in_after_ten_wrong_passwords_of_strangers(console: Any) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", password=PASSWORD)

        async def sign_in(browser: Any, status: int, password: str, address: str) -> Any:
            opened = await browser.get("/sign-in")
            form = {**opened.hidden(), "email": user.email, "password": password}
            headers = {"X-Forwarded-For": address}
            shown = await browser.ask("POST", "/sign-in", form, headers=headers)
            assert shown.status == status, shown.text
            return shown

        ann = await c.browser()
        await sign_in(ann, 303, PASSWORD, "192.0.2.1")
        cookie = next(cookie for cookie in ann.session.cookie_jar if cookie.key == KNOWN)
        assert cookie["httponly"] and cookie["samesite"] == "Lax" and int(cookie["max-age"]) == 90 * 86_400
        assert "ann" not in cookie.value
        await ann.post("/sign-out")
        assert KNOWN in ann.cookies and "gateway-session" not in ann.cookies
        for number in range(PER_SUBJECT):
            await sign_in(await c.browser(), 401, "a wrong password", f"198.51.100.{number}")
        await sign_in(await c.browser(), 429, PASSWORD, "203.0.113.1")
        await sign_in(ann, 303, PASSWORD, "203.0.113.2")

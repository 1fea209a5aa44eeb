"""The password that is asked for again before a dangerous action."""

from __future__ import annotations

import pytest

from gateway.console.cookies import Cookies
from gateway.console.visit import Asked, Visit
from gateway.errors import InvalidValue, SignInFailed
from tests.console.client import PASSWORD, Console


async def visit_of(c: Console, email: str, password: str) -> Visit:
    """A visit of a new user with this password, or with none."""
    browser = await c.signed_in(await c.user(email, role="operator", password=password))
    token = browser.cookies["gateway-session"]
    asked = Asked("POST", "/x", "console.test", {}, "127.0.0.1", "a test", False)
    visit = Visit(c.services, asked, Cookies({"gateway-session": token}.get, secure=False))
    await visit.identify()
    return visit


async def test_dangerous_action_needs_the_password_again(console) -> None:
    async with console() as c:
        visit = await visit_of(c, "root@example.com", PASSWORD)
        for typed in ("", "wrong password"):
            visit.form = {"current_password": [typed]}
            with pytest.raises(SignInFailed):
                await visit.confirm_password()
        visit.form = {"current_password": [PASSWORD]}
        await visit.confirm_password()


async def test_dangerous_action_is_not_possible_without_a_password(console) -> None:
    async with console() as c:
        visit = await visit_of(c, "new@example.com", "")
        visit.form = {"current_password": [""]}
        with pytest.raises(InvalidValue, match="set one on your profile"):
            await visit.confirm_password()

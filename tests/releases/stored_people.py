"""The people of a recorded version: they come by a link, set a password, and have a second factor and roles."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pyotp
from yarl import URL

from tests.console.client import Browser, Shown
from tests.fake_clock import FakeClock
from tests.polling import until
from tests.releases.registry import People

OPERATOR, OWNER, VIEWER = "ann@example.com", "bob@example.com", "eve@example.com"
PASSWORD = "a password for tests only"
SESSION = "gateway-session"
ROLES = {OPERATOR: "operator", OWNER: "none", VIEWER: "viewer"}
ENDING = re.compile(r'name="id" value="(token[^"]*)"')  # of an alert that does not depend on a process


@asynccontextmanager
async def browser_of(port: int, session: str = "") -> AsyncIterator[Browser]:
    """A browser at the console, with the cookie of a session."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
        browser = Browser(client, f"http://127.0.0.1:{port}", "")
        if session:
            client.cookie_jar.update_cookies({SESSION: session}, URL(browser.url))
        yield browser


async def store_people(gateway: Any, console_port: int, clock: FakeClock) -> People:
    """An operator with a second factor and a session, the owner of the account "test", and one who may read."""
    created = await gateway.command("users", "create", OPERATOR, "--operator")
    await gateway.command("users", "create", OWNER)
    await gateway.command("users", "create", VIEWER, "--viewer")
    await gateway.command("users", "member", OWNER, "test", "owner")
    await gateway.command("users", "limit", OWNER, "test", "--budget", "5")
    await gateway.command("keys", "create", "test", "--name", "own", "--user", OWNER)
    token = str((await gateway.command("tokens", "create", "ci", "--scopes", "read"))["token"])
    await gateway.command("tokens", "create", "soon", "--scopes", "read", "--expires", "5d")
    secret, session = await _signed_up(console_port, URL(created["link"]), clock)
    events = len(await gateway.command("audit-trail", "--limit", "1000"))
    return People(OPERATOR, PASSWORD, secret, session, OWNER, ROLES, token, events)


async def _signed_up(port: int, link: URL, clock: FakeClock) -> tuple[str, str]:
    """The secret of the second factor, and the session of the one who uses the link."""
    async with browser_of(port) as browser:
        await until(lambda: _shown(browser, "/sign-in"))
        fields: dict[str, Any] = {
            "token": link.query["token"],
            "action": "password",
            "password": PASSWORD,
            "repeated": PASSWORD,
        }
        await browser.post("/sign-in/link", page=link.raw_path_qs, **fields)
        page = "/profile/second-factor"
        secret = (await browser.get(page)).found(r'name="secret" value="([^"]+)"')
        code = pyotp.TOTP(secret).at(clock.now())
        await browser.post(page, page=page, secret=secret, code=code, current_password=PASSWORD)
        return secret, browser.cookies[SESSION]


async def _shown(browser: Browser, path: str) -> Shown | None:
    try:
        return await browser.get(path)
    except aiohttp.ClientError:
        return None


async def hide_alert(port: int, people: People) -> str:
    """The operator does not want to see that a token ends soon; the id of the alert."""
    async with browser_of(port, people.session) as browser:

        async def found() -> re.Match[str] | None:
            shown = await _shown(browser, "/site/alerts")
            return ENDING.search(shown.html) if shown is not None else None

        alert = (await until(found))[1]
        await browser.post("/site/alerts/hide", page="/site/alerts", id=alert, hours="168")
        assert "hidden from you" in (await browser.get("/site/alerts")).text
        return alert

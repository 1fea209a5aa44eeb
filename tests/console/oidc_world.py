"""The console with two identity providers, and a browser that goes there and back.

A module whose tests need it imports the fixture `oidc_world`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from gateway.admin.audit_trail import AuditFilter
from tests.console.client import ROOT, Browser, Console, Shown
from tests.console.identity_provider import SECRET, IdentityProvider, identity_provider
from tests.console.opening import MODELS

World = tuple[Console, IdentityProvider]
OpenWorld = Callable[..., AbstractAsyncContextManager[World]]


TABLE = """
[oidc.{name}]
issuer = "{issuer}"
client_id = "gateway"
client_secret = "env:OIDC_TEST_SECRET"
label = "{label}"
grants = [
  {{ claim = "groups", value = "search", account = "acme", role = "member" }},
  {{ claim = "groups", value = "leads", account = "acme", role = "owner" }},
  {{ claim = "realm_access.roles", value = "admins", site_role = "operator" }},
  {{ claim = "groups", value = "lost", account = "nowhere" }},
]
"""


@pytest.fixture
def oidc_world(console: Any, monkeypatch: pytest.MonkeyPatch) -> OpenWorld:
    """The console with two identity providers, `corp` and `rival`; the second is that of the tests of mix-ups."""
    monkeypatch.setenv("OIDC_TEST_SECRET", SECRET)

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[World]:
        async with AsyncExitStack() as stack:
            corp, rival = [await stack.enter_async_context(identity_provider()) for _ in range(2)]
            corp.others.append(rival)
            tables = TABLE.format(name="corp", issuer=corp.issuer, label="Corp")
            tables += TABLE.format(name="rival", issuer=rival.issuer, label="Rival")
            yield await stack.enter_async_context(console(models=MODELS + tables, **settings)), corp

    return opened


async def away(browser: Browser, provider: str = "corp", *, page: str = "/sign-in", **form: str) -> str:
    """Press the button; the address at the provider."""
    shown = await browser.post("/sign-in/oidc", 200, page=page, provider=provider, **form)
    address = shown.found(r'href="(http[^"]+)"')
    assert shown.found(r'content="0;url=([^"]+)"') == address
    return address


async def back(browser: Browser, address: str) -> str:
    """Sign in at the provider; the path with which it sends the browser back."""
    async with browser.session.get(address, allow_redirects=False) as answer:
        target = urlsplit(answer.headers["Location"])
    return f"{target.path}?{target.query}"


async def come(browser: Browser, provider: str = "corp", **form: str) -> Shown:
    """There and back."""
    return await browser.ask("GET", await back(browser, await away(browser, provider, **form)))


def replaced(path: str, **changes: str) -> str:
    target = urlsplit(path)
    return f"{target.path}?{urlencode({**dict(parse_qsl(target.query)), **changes})}"


async def reasons(c: Console) -> list[str]:
    """Why sign-ins were refused, the newest first."""
    trail = (await c.services.people()).audit_trail
    events = await trail.list(ROOT, AuditFilter(object="oidc"), limit=100)
    assert {event.action for event in events} <= {"sessions.refuse"}
    return [event.after["reason"] for event in events]


async def actions(c: Console, user_id: str) -> list[str]:
    trail = (await c.services.people()).audit_trail
    return [event.action for event in await trail.list(ROOT, AuditFilter(object=f"user:{user_id}"), limit=100)]

"""Providers that are slow, away or change their keys: what is fetched, and what an outage costs."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.admin.oidc import documents
from tests.console.client import PASSWORD
from tests.console.identity_provider import other_key, signed
from tests.console.oidc_world import OpenWorld, away, come, oidc_world, reasons
from tests.polling import until

__all__ = ["oidc_world"]


async def test_outage_of_a_provider_uses_up_no_attempts(oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PAUSE", 0.0)
    for limit in ("PER_ADDRESS", "PROVIDER_PER_ADDRESS"):
        monkeypatch.setattr(f"gateway.admin.sign_in_limits.{limit}", 2)
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        await c.user("bob@example.com", password=PASSWORD)
        browser = await c.browser()
        corp.away = {".well-known/openid-configuration"}
        for _ in range(3):
            await browser.post("/sign-in/oidc", 503, page="/sign-in", provider="corp")
        corp.away = {"token"}
        for _ in range(3):
            assert (await come(browser)).status == 503
        corp.away = set()
        assert (await come(await c.browser())).status == 303
        for status in (200, 200, 429):  # sign-ins that are begun and not finished
            await browser.post("/sign-in/oidc", status, page="/sign-in", provider="corp")
        await browser.post("/sign-in", page="/sign-in", email="bob@example.com", password=PASSWORD)


async def test_slow_provider_does_not_hold_up_another_one(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.admin.oidc.fetch.AT_ONCE", 1)
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        corp.go_on.clear()
        slow = asyncio.create_task(come(await c.browser()))
        await until(lambda: corp.fetched)
        async with asyncio.timeout(5):
            await away(await c.browser(), "rival")
        assert not slow.done()
        corp.go_on.set()
        assert (await slow).status == 303


async def test_keys_are_fetched_again_at_most_once_a_minute(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0
    monkeypatch.setattr(documents, "monotonic", lambda: time.monotonic() + passed)
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        corp.sign = lambda claims: signed(claims, "RS256", other_key())  # with the id of the known key
        for seconds, fetched in ((0, 1), (31, 1), (30, 2), (6, 2), (60, 3), (6, 3)):
            passed += seconds
            corp.away = {"keys"} if fetched == 3 else set()  # a failure is not repeated sooner
            assert (await come(await c.browser())).status == 403 and (await reasons(c))[0] == "signature"
            assert corp.fetched.count("keys") == fetched, (seconds, fetched)
        corp.keys, corp.away = [other_key()], set()
        passed += 61
        assert (await come(await c.browser())).status == 303

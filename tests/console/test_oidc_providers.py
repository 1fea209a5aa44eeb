"""Providers that are slow, away or change their keys: what is fetched, and what an outage costs."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import parse_qsl, urlsplit

import pytest

from gateway.people.oidc import documents
from gateway.people.oidc.fetch import SHARE
from gateway.people.sign_in_limits import MOST_RECORDED
from tests.console.client import PASSWORD, Browser
from tests.console.identity_provider import other_key, signed
from tests.console.oidc_world import OpenWorld, away, back, come, oidc_world, reasons
from tests.polling import until

__all__ = ["oidc_world"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-12")
async def test_outage_of_a_provider_uses_up_no_attempts(oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PAUSE", 0.0)
    for limit in ("PER_ADDRESS", "PROVIDER_PER_ADDRESS"):
        monkeypatch.setattr(f"gateway.people.sign_in_limits.{limit}", 2)
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


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-11")
async def test_slow_provider_does_not_hold_up_another_one(
    oidc_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.people.oidc.fetch.AT_ONCE", 1)
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        corp.go_on.clear()
        slow = asyncio.create_task(come(await c.browser()))
        await until(lambda: corp.fetched)
        async with asyncio.timeout(60):
            await away(await c.browser(), "rival")
        assert not slow.done()
        corp.go_on.set()
        assert (await slow).status == 303


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-11")
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


async def cancelled(browser: Browser, network: str) -> None:
    """Begin a sign-in and cancel it, from a network."""
    sent = {"X-Forwarded-For": network}
    form = {**(await browser.get("/sign-in")).hidden(), "provider": "corp"}
    shown = await browser.ask("POST", "/sign-in/oidc", form, headers=sent)
    state = dict(parse_qsl(urlsplit(shown.found(r'href="(http[^"]+)"')).query))["state"]
    path = f"/sign-in/oidc/corp/callback?error=access_denied&state={state}"
    assert (await browser.ask("GET", path, headers=sent)).status == 403


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-12")
async def test_network_whose_sign_ins_are_refused_many_times_has_few_events_of_a_reason(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        browser = await c.browser()
        for _ in range(MOST_RECORDED + 3):
            await cancelled(browser, "198.51.100.1")
        assert await reasons(c) == ["cancelled"] * MOST_RECORDED
        await cancelled(browser, "192.0.2.1")
        assert await reasons(c) == ["cancelled"] * (MOST_RECORDED + 1), "another network"
        stranger = await c.browser()
        path = await back(stranger, await away(stranger))
        sent = {"X-Forwarded-For": "198.51.100.1"}
        assert (await stranger.ask("GET", path, headers=sent)).status == 403
        assert (await reasons(c))[0] == "unknown", "another reason"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-11")
async def test_network_with_many_sign_ins_leaves_places_at_the_provider_to_others(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        await c.user("ann@example.com")
        assert (await come(await c.browser())).status == 303  # the provider's documents are known
        coming = []
        for network in ["198.51.100.1"] * (SHARE + 3) + ["192.0.2.1"]:
            browser = await c.browser()
            coming.append((browser, await back(browser, await away(browser)), {"X-Forwarded-For": network}))
        corp.fetched.clear()
        corp.go_on.clear()
        asked = [asyncio.create_task(one.ask("GET", path, headers=sent)) for one, path, sent in coming[:-1]]
        await until(lambda: corp.fetched.count("token") == SHARE)
        one, path, sent = coming[-1]
        asked.append(asyncio.create_task(one.ask("GET", path, headers=sent)))
        await until(lambda: corp.fetched.count("token") == SHARE + 1)
        corp.go_on.set()
        assert {shown.status for shown in await asyncio.gather(*asked)} == {303}
        assert corp.fetched.count("token") == len(coming)

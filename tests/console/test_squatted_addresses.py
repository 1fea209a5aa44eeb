"""Somebody who makes a user of an address that nobody has proved does not keep the person out whom a provider sends."""

from __future__ import annotations

from typing import Any

import pyotp
import pytest

from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, actions, back, come, oidc_world
from tests.console.test_claims_and_ways_in import EVIL, PIA, sees
from tests.console.test_links_of_others import opened

__all__ = ["database_address", "database_url", "oidc_world"]


async def squatted(c: Console, corp: IdentityProvider, *steps: str) -> Browser:
    """The browser of somebody who has signed in as an unproved user of Pia, and has set up these things."""
    people, thief = await c.services.people(), await c.browser()
    if "password" in steps:
        mallory = await c.as_("mallory", other="owner")
        page = "/accounts/other/members"
        shown = await mallory.post(page, 200, page=page, email=PIA, role="member")
        token = shown.found(r"/invitation\?token=([\w-]+)")
        form = {"token": token, "password": PASSWORD, "repeated": PASSWORD}
        await thief.post("/invitation", 303, page=f"/invitation?token={token}", **form)
    else:
        _, made = await c.ask_api(("users",), "POST", "/users", {"email": PIA})
        assert await opened(thief, made["link"], action="sign_in")
    confirmed = {"current_password": PASSWORD} if "password" in steps else {}
    for provider in (one for one in ("corp", "rival") if one in steps):
        for one in (corp, corp.others[0]):
            one.person = {"sub": "mallory", "email": EVIL, "email_verified": True}
        leaving = await thief.post("/profile/identities", 200, page="/profile", provider=provider, **confirmed)
        connected = await thief.ask("GET", await back(thief, leaving.found(r'href="(http[^"]+)"')))
        assert connected.status == 303
    if "second factor" in steps:
        shown = await thief.get("/profile/second-factor")
        secret = shown.found(r'name="secret" value="([A-Z2-7]{32})"')
        form = {"secret": secret, "code": pyotp.TOTP(secret).now(), **confirmed}
        await thief.post("/profile/second-factor", 303, page="/profile/second-factor", **form)
    user = await people.users.find(ROOT, PIA)
    assert user.proved == "no" and user.has_second_factor is ("second factor" in steps)
    return thief


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-13", "security.md#e-mail-addresses-and-invitations-10")
@pytest.mark.parametrize(
    "steps",
    [
        ("password",),
        ("second factor",),
        ("password", "second factor"),
        ("rival",),
        ("password", "corp"),
        ("password", "rival", "second factor"),
    ],
    ids=" and ".join,
)
async def test_person_of_a_provider_comes_in_whatever_somebody_else_has_set_up_for_the_address(
    oidc_world: OpenWorld, steps: tuple[str, ...]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, thief = await c.services.people(), await squatted(c, corp, *steps)
        user = await people.users.find(ROOT, PIA)
        planted = [await people.member_keys.create(ROOT, name, user.id) for name in user.accounts]
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True, "groups": ["search"]}
        pia = await c.browser()
        asked = await come(pia)
        assert asked.status == 303
        path = "/sign-in/code" if steps == ("second factor",) else "/sign-in/oidc/password"
        assert asked.location.startswith(path) and "API keys" in (await pia.get(asked.location)).text
        await pia.post(path, 303, page=asked.location, action="take_over")
        assert PIA in (await pia.get("/profile")).text and await sees(pia, "/accounts/acme")
        assert not await sees(thief, "/profile")
        found = await people.users.find(ROOT, PIA)
        assert (found.id, found.proved, found.has_password, found.has_second_factor) == (
            user.id,
            "provider",
            False,
            False,
        )
        assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
        for key in planted:
            record = await people.keys.find(key.id)
            assert record is not None and record.state == "revoked"
        assert "users.take_over" in await actions(c, user.id)
        again = await c.browser()
        assert (await come(again)).status == 303 and await sees(again, "/accounts/acme")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-13", "security.md#e-mail-addresses-and-invitations-10")
@pytest.mark.parametrize("steps", [("password",), ("second factor",)], ids=" and ".join)
async def test_user_whose_address_is_proved_is_not_taken_over_by_a_person_of_a_provider(
    oidc_world: OpenWorld, steps: tuple[str, ...]
) -> None:
    """Also if it was proved while the person was asked."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, holder = await c.services.people(), await squatted(c, corp, *steps)
        user = await people.users.find(ROOT, PIA)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia, later = await c.browser(), await c.browser()
        asked = await come(pia)
        await people.users.prove(ROOT, user.id)
        path = asked.location.partition("?")[0]
        assert "API keys" not in (await pia.get(asked.location)).text
        await pia.ask("POST", path, {**(await pia.get(asked.location)).hidden(), "action": "take_over"})
        asked = await come(later)
        await later.ask("POST", path, {**(await later.get(asked.location)).hidden(), "action": "take_over"})
        assert not await sees(pia, "/profile") and not await sees(later, "/profile")
        assert await sees(holder, "/profile")
        assert await people.identities.list(ROOT, user.id) == []


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-13")
async def test_code_after_a_password_is_not_left_out(console: Any) -> None:
    """Only a person whom a provider sends is the holder of the address."""
    async with console() as c:
        people = await c.services.people()
        user = await c.user(PIA, password=PASSWORD, is_proved=False)
        browser = await c.browser()
        await browser.post("/sign-in", 303, page="/sign-in", email=PIA, password=PASSWORD)
        page = await browser.get("/profile/second-factor")
        secret = page.found(r'name="secret" value="([A-Z2-7]{32})"')
        form = {"secret": secret, "code": pyotp.TOTP(secret).now(), "current_password": PASSWORD}
        await browser.post("/profile/second-factor", 303, page="/profile/second-factor", **form)
        other = await c.browser()
        asked = await other.post("/sign-in", 303, page="/sign-in", email=PIA, password=PASSWORD)
        assert "API keys" not in (await other.get(asked.location)).text
        await other.post("/sign-in/code", 303, page=asked.location, action="take_over")
        assert not await sees(other, "/profile") and await sees(browser, "/profile")
        assert (await people.users.show(ROOT, user.id)).has_second_factor

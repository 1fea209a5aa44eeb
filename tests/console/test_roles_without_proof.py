"""A user who got a role is not taken over by the address alone: neither past the password nor past the code."""

from __future__ import annotations

import time
from typing import Any

import pyotp
import pytest

from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console, Shown
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, come, oidc_world, reasons
from tests.console.test_claims_and_ways_in import PIA, resets, sees
from tests.console.test_granted_roles import by_password
from tests.console.test_links_of_others import SET, opened
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "oidc_world"]

HAS_ROLE = pytest.mark.parametrize(
    "role", ["operator", "viewer", "invited viewer", "member", "invited owner", "owner by a program"]
)
FORM = {"password": PASSWORD, "repeated": PASSWORD}


async def enable_code(browser: Browser, password: str = PASSWORD) -> str:
    """Set up a second factor; its secret."""
    shown = await browser.get("/profile/second-factor")
    secret = shown.found(r'name="secret" value="([A-Z2-7]{32})"')
    form = {"secret": secret, "code": pyotp.TOTP(secret).now(), "current_password": password}
    await browser.post("/profile/second-factor", 303, page="/profile/second-factor", **form)
    return secret


async def accepts(c: Console, token: str) -> Browser:
    """A new browser that accepts an invitation with a password."""
    browser = await c.browser()
    await browser.post("/invitation", 303, page=f"/invitation?token={token}", token=token, **FORM)
    return browser


async def with_role(c: Console, role: str) -> Browser:
    """The browser of Pia, who is not proved and got this role by a link that was handed over, and has a password."""
    people = await c.services.people()
    if role == "invited viewer":
        return await accepts(c, (await people.invitations.to_site(ROOT, PIA, "viewer")).token)
    if role == "invited owner":
        return await accepts(c, (await people.invitations.to_account(ROOT, PIA, "acme", "owner")).token)
    site_role: Any = role if role in ("operator", "viewer") else "none"
    user = await people.users.create(ROOT, PIA, role=site_role)
    if role == "member":
        await people.memberships.set(ROOT, user.id, "acme", "member")
    if role == "owner by a program":
        scopes = ("read", "accounts", "keys", "users")
        status, shown = await c.ask_api(scopes, "PUT", f"/accounts/acme/members/{user.id}", {"role": "owner"})
        assert status == 200, shown
    browser = await c.browser()
    assert await opened(browser, (await people.sign_in_links.create(ROOT, user.id)).url, **FORM, action="password")
    return browser


async def comes(c: Console, corp: IdentityProvider, provider: str = "corp") -> tuple[Browser, Shown]:
    """A person whom a provider calls the holder of Pia's address, and what the person is shown."""
    source = corp if provider == "corp" else corp.others[0]
    source.person = {"sub": "somebody", "email": PIA, "email_verified": True}
    browser = await c.browser()
    return browser, await come(browser, provider)


async def takes_over(browser: Browser, asked: Shown) -> None:
    """Press the button, also if the page does not have it."""
    shown = await browser.get(asked.location)
    assert "API keys" not in shown.text
    await browser.ask("POST", asked.location.partition("?")[0], {**shown.hidden(), "action": "take_over"})


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15", "security.md#e-mail-addresses-and-invitations-11")
@HAS_ROLE
@pytest.mark.parametrize("provider", ["corp", "rival"])
async def test_user_who_got_a_role_is_not_taken_over_without_the_password(
    oidc_world: OpenWorld, role: str, provider: str
) -> None:
    async with oidc_world() as (c, corp):
        holder = await with_role(c, role)
        people = await c.services.people()
        before = await people.users.find(ROOT, PIA)
        assert before.proved == "no" and (before.role != "none" or before.accounts)
        thief, asked = await comes(c, corp, provider)
        await takes_over(thief, asked)
        assert not await sees(thief, "/profile") and await sees(holder, "/profile")
        assert await people.users.find(ROOT, PIA) == before
        await thief.post("/sign-in/oidc/password", 303, page=asked.location, password=PASSWORD)  # it is Pia
        assert await sees(thief, "/profile")
        assert (await people.users.find(ROOT, PIA)).proved == "provider"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15", "security.md#e-mail-addresses-and-invitations-11")
@HAS_ROLE
async def test_user_who_got_a_role_is_not_taken_over_without_the_code(oidc_world: OpenWorld, role: str) -> None:
    """The person knows the password; the holder of the code comes in."""
    async with oidc_world() as (c, corp):
        holder = await with_role(c, role)
        secret = await enable_code(holder)
        people = await c.services.people()
        before = await people.users.find(ROOT, PIA)
        thief, asked = await comes(c, corp)
        asked = await thief.post("/sign-in/oidc/password", 303, page=asked.location, password=PASSWORD)
        assert asked.location.startswith("/sign-in/code")
        await takes_over(thief, asked)
        assert not await sees(thief, "/profile") and await sees(holder, "/profile")
        assert await people.users.find(ROOT, PIA) == before
        pia, asked = await comes(c, corp)
        asked = await pia.post("/sign-in/oidc/password", 303, page=asked.location, password=PASSWORD)
        code = pyotp.TOTP(secret).at(time.time() + 30)
        await pia.post("/sign-in/code", 303, page=asked.location, code=code)
        assert await sees(pia, "/profile")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15")
async def test_user_with_a_role_who_signed_in_by_a_link_alone_is_not_found_by_the_address(
    oidc_world: OpenWorld,
) -> None:
    """An operator marks the user; then the person comes in."""
    async with oidc_world() as (c, corp):
        people, holder = await c.services.people(), await c.browser()
        user = await people.users.create(ROOT, PIA, role="operator")
        link = await people.sign_in_links.create(ROOT, user.id)
        assert await opened(holder, link.url, action="sign_in")
        thief, refused = await comes(c, corp)
        assert refused.status == 403 and "ask your operator to mark" in refused.text
        assert not await sees(thief, "/profile") and await sees(holder, "/site/users")
        assert await reasons(c) == ["not_proved"]
        await people.users.prove(ROOT, user.id)
        pia, shown = await comes(c, corp)
        assert shown.status == 303 and await sees(pia, "/site/users")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15")
async def test_user_with_a_role_as_whom_nobody_signed_in_is_found_by_the_address(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        await (await c.services.people()).users.create(ROOT, PIA, role="viewer")
        pia, shown = await comes(c, corp)
        assert shown.status == 303 and await sees(pia, "/site/users")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-13")
@pytest.mark.parametrize("role", ["member", "owner"])
async def test_membership_that_an_owner_gave_ends_when_the_user_is_taken_over(oidc_world: OpenWorld, role: str) -> None:
    """It keeps nobody out, and is for nobody whom only a provider calls the holder; also if the owner lowers it."""
    async with oidc_world() as (c, corp):
        people, mallory = await c.services.people(), await c.as_("mallory", other="owner")
        page = "/accounts/other/members"
        shown = await mallory.post(page, 200, page=page, email=PIA, role="owner")
        squatter = await accepts(c, shown.found(r"/invitation\?token=([\w-]+)"))
        user = await people.users.find(ROOT, PIA)
        await mallory.post(f"{page}/{user.id}/role", 303, page=page, role=role)
        pia, asked = await comes(c, corp)
        await pia.post("/sign-in/oidc/password", 303, page=asked.location, action="take_over")
        assert await sees(pia, "/profile") and not await sees(squatter, "/profile")
        assert (await people.users.find(ROOT, PIA)).accounts == {}


@pytest.mark.holds("people.md#proved-addresses-13")
@pytest.mark.parametrize("role", ["operator", "invited owner"])
async def test_new_password_by_mail_leaves_the_code_of_a_user_with_a_role(oidc_world: OpenWorld, role: str) -> None:
    async with oidc_world() as (c, _):
        mail, holder = await with_mail(c), await with_role(c, role)
        await enable_code(holder)
        mailbox = await c.browser()
        assert not await resets(c, mail, mailbox, PIA)
        assert not await sees(mailbox, "/profile") and not await sees(holder, "/profile")
        person = await by_password(c, password=SET["password"])
        assert not await sees(person, "/profile")
        user = await (await c.services.people()).users.find(ROOT, PIA)
        assert user.has_second_factor and user.proved == "mail"


@pytest.mark.holds("people.md#proved-addresses-13")
async def test_invitation_by_mail_leaves_the_code_of_a_user_with_a_role(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        mail, holder = await with_mail(c), await with_role(c, "operator")
        await enable_code(holder)
        mallory = await c.as_("mallory", other="owner")
        page = "/accounts/other/members"
        await mallory.post(page, 303, page=page, email=PIA, role="member")
        token = mail.sent[-1][1].partition("token=")[2].split()[0]
        mailbox = await c.browser()
        hidden = (await mailbox.get(f"/invitation?token={token}")).hidden()
        await mailbox.ask("POST", "/invitation", {**hidden, "token": token, **FORM})
        assert not await sees(mailbox, "/profile") and await sees(holder, "/site/users")

"""Who gave a role is stored when it is given: what happens to the giver afterwards changes nothing."""

from __future__ import annotations

import time

import pyotp
import pytest

from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_claims_and_ways_in import PIA, sees
from tests.console.test_links_of_others import SET, opened
from tests.console.test_roles_without_proof import FORM, comes, enable_code, takes_over, with_role

__all__ = ["database_address", "database_url", "oidc_world"]


async def given_by_operator_of_the_account(c: Console, how: str) -> Browser:
    """The browser of Pia, a member by an operator who is an owner of the account, too, and is demoted afterwards."""
    people, browser = await c.services.people(), await c.browser()
    await c.user("root@example.com", role="operator")
    rob = await c.user("rob@example.com", role="operator", password=PASSWORD, acme="owner")
    operator = await c.signed_in(rob)
    page = "/accounts/acme/members"
    if how == "invitation":
        shown = await operator.post(page, 200, page=page, email=PIA, role="owner")
        token = shown.found(r"/invitation\?token=([\w-]+)")
        await browser.post("/invitation", 303, page=f"/invitation?token={token}", token=token, **FORM)
    else:
        user = await people.users.create(ROOT, PIA)
        actor = (await people.users.show(ROOT, rob.id)).actor("")
        await people.memberships.set(actor, user.id, "acme", "member")
        link = await people.sign_in_links.create(ROOT, user.id)
        assert await opened(browser, link.url, **SET)
    await people.users.edit(ROOT, rob.id, {"role": "none"})
    return browser


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15", "security.md#e-mail-addresses-and-invitations-11")
@pytest.mark.parametrize("how", ["invitation", "set"])
async def test_role_of_an_operator_who_was_demoted_since_is_not_one_of_an_owner(
    oidc_world: OpenWorld, how: str
) -> None:
    async with oidc_world() as (c, corp):
        holder = await given_by_operator_of_the_account(c, how)
        people = await c.services.people()
        before = await people.users.find(ROOT, PIA)
        assert before.accounts and before.proved == "no"
        thief, asked = await comes(c, corp)
        await takes_over(thief, asked)
        assert not await sees(thief, "/profile") and await sees(holder, "/profile")
        assert await people.users.find(ROOT, PIA) == before


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15", "security.md#e-mail-addresses-and-invitations-11")
async def test_role_that_an_operator_gave_stays_one_of_the_operator_when_an_owner_changes_it(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world() as (c, corp):
        holder = await with_role(c, "member")
        people, mallory = await c.services.people(), await c.as_("mallory", acme="owner")
        user = await people.users.find(ROOT, PIA)
        page = "/accounts/acme/members"
        await people.users.prove(ROOT, user.id)  # for a higher role
        await mallory.post(f"{page}/{user.id}/role", 303, page=page, role="owner")
        _, made = await c.ask_api(("read", "keys", "accounts", "users"), "POST", f"/users/{user.id}/link")
        assert "link" in made
        assert (await people.users.find(ROOT, PIA)).proved == "no"
        thief, asked = await comes(c, corp)
        await takes_over(thief, asked)
        assert not await sees(thief, "/profile") and await sees(holder, "/profile")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-15", "security.md#e-mail-addresses-and-invitations-11")
async def test_account_of_a_sign_up_is_not_taken_over_after_the_proof_is_lost(oidc_world: OpenWorld) -> None:
    """Another provider calls somebody else the holder of the address; the account has a balance of Pia."""
    async with oidc_world(signup="open", signup_account=True) as (c, corp):
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        assert (await come(pia)).status == 303
        people = await c.services.people()
        user = await people.users.find(ROOT, PIA)
        assert list(user.accounts.values()) == ["owner"]
        scopes = ("read", "keys", "accounts", "users")
        status, shown = await c.ask_api(scopes, "POST", f"/users/{user.id}/link")
        assert status == 201, shown
        assert (await people.users.find(ROOT, PIA)).proved == "no"
        thief, asked = await comes(c, corp, "rival")
        if asked.status == 303:
            await takes_over(thief, asked)
        assert not await sees(thief, "/profile") and await sees(pia, "/profile")
        assert (await people.users.find(ROOT, PIA)).accounts == user.accounts


async def connected_operator(c: Console, corp: IdentityProvider) -> tuple[Browser, str]:
    """The browser of an operator who is not proved, connected with Corp, and has a second factor; its secret."""
    holder = await with_role(c, "operator")
    corp.person = {"sub": "pia", "email": PIA, "email_verified": False}
    leaving = await holder.post("/profile/identities", 200, page="/profile", provider="corp", current_password=PASSWORD)
    async with holder.session.get(leaving.found(r'href="(http[^"]+)"'), allow_redirects=False) as answer:
        target = answer.headers["Location"]
    assert (await holder.ask("GET", target.partition("/sign-in/")[1] + target.partition("/sign-in/")[2])).status == 303
    return holder, await enable_code(holder)


@pytest.mark.holds("people.md#proved-addresses-4", "people.md#signing-in-by-an-identity-provider-6")
async def test_invitation_of_an_owner_does_not_replace_the_code_for_a_person_of_a_provider(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world() as (c, corp):
        holder, secret = await connected_operator(c, corp)
        people, mallory = await c.services.people(), await c.as_("mallory", other="owner")
        before = await people.users.find(ROOT, PIA)
        page = "/accounts/other/members"
        shown = await mallory.post(page, 200, page=page, email=PIA, role="member")
        token = shown.found(r"/invitation\?token=([\w-]+)")
        thief = await c.browser()
        refused = await come(thief, page=f"/invitation?token={token}", invitation=token)
        assert refused.status >= 400
        assert not await sees(thief, "/profile") and await sees(holder, "/site/users")
        assert await people.users.find(ROOT, PIA) == before
        asked = await come(thief)
        assert asked.location.startswith("/sign-in/code")
        code = pyotp.TOTP(secret).at(time.time() + 30)
        await thief.post("/sign-in/code", 303, page=asked.location, code=code)
        assert await sees(thief, "/site/users")


@pytest.mark.holds("people.md#proved-addresses-14")
async def test_refused_take_over_revokes_no_key(oidc_world: OpenWorld) -> None:
    """A person who is known as another user has the link."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        corp.person = {"sub": "eve", "email": "eve@example.com", "email_verified": True}
        eve = await c.browser()
        assert (await come(eve)).status == 303
        await with_role(c, "member")
        people = await c.services.people()
        user = await people.users.find(ROOT, PIA)
        key = await people.member_keys.create(ROOT, "acme", user.id)
        new = await people.invitations.to_account(ROOT, PIA, "other", "member")
        refused = await come(await c.browser(), page=f"/invitation?token={new.token}", invitation=new.token)
        assert refused.status == 403
        record = await people.keys.find(key.id)
        assert record is not None and record.state == "active"

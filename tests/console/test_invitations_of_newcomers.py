"""A new person chooses which invitations of accounts to accept; only those of operators count by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console.pages.sign_up import SIGN_UP
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, come, oidc_world
from tests.console.test_sign_in import with_mail
from tests.console.test_sign_up import CONFIRM, path_in

__all__ = ["database_address", "database_url", "oidc_world"]

ANN = "ann@example.com"


async def invite(c: Console, account: str = "other", role: Any = "member", email: str = ANN) -> str:
    """An invitation of an owner; its id."""
    people = await c.services.people()
    owner = await c.user(f"{account}-owner@example.com")
    owner = await people.memberships.set(ROOT, owner.id, account, "owner")
    return (await people.invitations.to_account(owner.actor(""), email, account, role)).invitation.id


async def signs_up(c: Console, mail: Any, email: str = ANN, status: int = 303) -> Browser:
    browser, people = await c.browser(), await c.services.people()
    await browser.post(SIGN_UP, 200, page=SIGN_UP, email=email)
    await people.sign_ups.finish()
    path = path_in(mail.sent[-1][1])
    form = {"token": path.partition("token=")[2], "name": "Ann", "password": PASSWORD, "repeated": PASSWORD}
    await browser.post(CONFIRM, status, page=path, **form)
    return browser


async def accounts_of(c: Console, email: str = ANN) -> dict[str, str]:
    return (await (await c.services.people()).users.find(ROOT, email)).accounts


@pytest.mark.holds("people.md#new-people-3", "security.md#e-mail-addresses-and-invitations-8")
@pytest.mark.parametrize("by", ["mail", "provider"])
async def test_owner_adds_nobody_who_signs_up_and_the_person_has_an_account_of_their_own(
    oidc_world: OpenWorld, by: str
) -> None:
    async with oidc_world(signup="open", signup_credit=1) as (c, _):
        mail = await with_mail(c)
        id_ = await invite(c)
        browser = await (signs_up(c, mail) if by == "mail" else c.browser())
        if by == "provider":
            await come(browser)
        [(own, role)] = (await accounts_of(c)).items()
        assert own.startswith("u-") and role == "owner"
        assert (await c.services.store.accounts.show(own)).balance == 1_000_000_000
        page = await browser.get("/profile")
        assert "You are invited" in page.text and "other as member" in page.text
        assert "Ann" not in (await (await c.signed_in(await owner_of(c))).get("/accounts/other/members")).text
        await browser.post(f"/profile/invitations/{id_}", page="/profile")
        assert await accounts_of(c) == {own: "owner", "other": "member"}
        assert "You are invited" not in (await browser.get("/profile")).text
        await browser.post(f"/profile/invitations/{id_}", 404, page="/profile")


async def owner_of(c: Console, account: str = "other") -> Any:
    return await (await c.services.people()).users.find(ROOT, f"{account}-owner@example.com")


@pytest.mark.holds("people.md#new-people-3", "security.md#e-mail-addresses-and-invitations-8")
@pytest.mark.parametrize("by", ["mail", "provider"])
async def test_invitation_of_an_owner_lets_a_person_come_who_is_no_member_until_they_accept(
    oidc_world: OpenWorld, by: str
) -> None:
    async with oidc_world(signup="invite") as (c, _):
        mail, people = await with_mail(c), await c.services.people()
        id_ = await invite(c, role="owner")
        browser = await (signs_up(c, mail) if by == "mail" else c.browser())
        if by == "provider":
            assert (await come(browser)).status == 303
        assert await accounts_of(c) == {}
        page = await browser.get("/")  # a person without an account comes to the profile
        assert "other as owner" in page.text
        await browser.post(f"/profile/invitations/{id_}", page="/profile")
        assert await accounts_of(c) == {"other": "owner"}
        assert await people.invitations.list(ROOT, "other") == []


@pytest.mark.holds("people.md#new-people-3", "people.md#new-people-5")
@pytest.mark.parametrize("by", ["mail", "provider"])
async def test_owner_gives_no_account_and_no_credit_to_a_person_of_another_domain(
    oidc_world: OpenWorld, by: str
) -> None:
    """The owner has signed up, and invites a person of no domain of `signup_domains`, who comes as a member only."""
    outsider = "mallory@evil.example"
    async with oidc_world(signup="open", signup_domains=["example.com"], signup_credit=1) as (c, corp):
        mail = await with_mail(c)
        owner = await signs_up(c, mail)
        [own] = await accounts_of(c)
        assert (await c.services.store.accounts.show(own)).balance == 1_000_000_000
        members = f"/accounts/{own}/members"
        await owner.post(members, 303, page=members, email=outsider, role="owner")
        if by == "mail":
            browser = await signs_up(c, mail, outsider)
        else:
            corp.person = {"sub": "mallory", "email": outsider, "email_verified": True}
            browser = await c.browser()
            assert (await come(browser)).status == 303
        assert await accounts_of(c, outsider) == {}
        [invitation] = await (await c.services.people()).invitations.list(ROOT, own)
        await browser.post(f"/profile/invitations/{invitation.id}", page="/profile")
        assert await accounts_of(c, outsider) == {own: "owner"}
        assert {one.name for one in await c.services.store.accounts.list()} == {"acme", "other", own}


@pytest.mark.holds("people.md#new-people-2")
async def test_invitations_of_operators_count_by_themselves_beside_those_of_owners(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_credit=1) as (c, _):
        people = await c.services.people()
        await invite(c)
        await people.invitations.to_account(ROOT, ANN, "acme", "member")
        browser = await c.browser()
        await come(browser)
        assert await accounts_of(c) == {"acme": "member"}
        assert "other as member" in (await browser.get("/profile")).text


@pytest.mark.holds("people.md#new-people-3")
async def test_invitation_of_a_program_to_the_site_replaces_no_account_of_ones_own(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open") as (c, _):
        body = {"email": ANN, "role": "none", "mail": False}
        assert (await c.ask_api(("users",), "POST", "/invitations", body))[0] == 201
        await come(await c.browser())
        assert list((await accounts_of(c)).values()) == ["owner"]


@pytest.mark.holds("people.md#new-people-6")
async def test_person_who_gets_an_own_account_counts_in_the_limit_although_an_owner_invited_them(console: Any) -> None:
    async with console(signup="open", signup_limit=1) as c:
        mail = await with_mail(c)
        await invite(c)
        await signs_up(c, mail, "first@example.com")
        await signs_up(c, mail, status=429)


@pytest.mark.holds("people.md#new-people-3", "security.md#e-mail-addresses-and-invitations-8")
async def test_only_the_proved_user_of_the_address_sees_and_accepts_an_invitation_without_its_link(
    console: Any,
) -> None:
    async with console() as c:
        people = await c.services.people()
        id_, site = await invite(c), await people.invitations.to_site(ROOT, ANN, "operator")
        ann, eve = await c.user(ANN, is_proved=False), await c.user("eve@example.com")
        for user in (ann, eve):
            browser = await c.signed_in(user)
            assert "You are invited" not in (await browser.get("/profile")).text
            await browser.post(f"/profile/invitations/{id_}", 404, page="/profile")
        await people.users.prove(ROOT, ann.id)
        browser = await c.signed_in(ann)
        text = (await browser.get("/profile")).text
        assert "other as member" in text and "as operator" not in text  # a role on the site needs the link
        await browser.post(f"/profile/invitations/{site.invitation.id}", 404, page="/profile")
        owner = await owner_of(c)
        await people.memberships.remove(ROOT, owner.id, "other")  # which ends what the owner made
        await browser.post(f"/profile/invitations/{id_}", 404, page="/profile")
        assert await accounts_of(c) == {}

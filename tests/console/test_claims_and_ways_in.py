"""What claims of a provider give reaches nobody but its person: not by links, another address, or a new password."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.granted import Granted
from gateway.admin.user_rows import User
from gateway.database.people_tables import users
from gateway.errors import LastOperator
from gateway.people.identities import insert_identity, note_use
from gateway.people.memberships import put_membership
from gateway.people.sessions import insert_session
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, actions, come, oidc_world
from tests.console.test_links_of_others import SET, opened
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "oidc_world"]

PIA = "pia@corp.test"
EVIL = "mallory@evil.test"
NEW = "a password of the person"
OPERATOR = {"realm_access": {"roles": ["admins"]}}
OWNER = {"groups": ["leads"]}
RAISED = OPERATOR | OWNER


async def invited(c: Console, corp: IdentityProvider, **claims: Any) -> User:
    """A user who accepted an operator's invitation with a provider that verifies no address."""
    people = await c.services.people()
    corp.person = {"sub": "pia", "email": PIA, **claims}
    new = await people.invitations.to_site(ROOT, PIA, "none")
    assert (await come(await c.browser(), page=f"/invitation?token={new.token}", invitation=new.token)).status == 303
    return await people.users.find(ROOT, PIA)


async def signed_up(c: Console, corp: IdentityProvider) -> tuple[User, Browser]:
    """A user without an account whom the provider has sent, with a verified address."""
    corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
    browser = await c.browser()
    assert (await come(browser)).status == 303
    return await (await c.services.people()).users.find(ROOT, PIA), browser


async def resets(c: Console, mail: Any, browser: Browser, email: str) -> bool:
    """Whether the owner of the mailbox sets a password, and is signed in then."""
    people = await c.services.people()
    mail.sent.clear()
    await browser.post("/password/forgotten", 200, page="/password/forgotten", email=email)
    await people.messages.finish()
    if not mail.sent:
        return False
    [(to, text)] = mail.sent
    assert to == email
    return await opened(browser, "?token=" + text.partition("token=")[2].split()[0], **SET)


async def sees(browser: Browser, path: str) -> bool:
    return (await browser.ask("GET", path)).status == 200


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-9", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("claims", [OPERATOR, OWNER], ids=["operator", "owner"])
@pytest.mark.parametrize("scopes", [("users",), ("read", "users")], ids=["users", "read+users"])
async def test_link_of_a_token_does_not_lead_into_a_user_whom_claims_raised_since(
    oidc_world: OpenWorld, scopes: tuple[str, ...], claims: dict[str, Any]
) -> None:
    async with oidc_world() as (c, corp):
        user, thief = await invited(c, corp), await c.browser()
        status, made = await c.ask_api(scopes, "POST", f"/users/{user.id}/link")
        assert status == (201 if "read" in scopes else 403), made  # somebody has signed in as this user
        corp.person |= claims
        assert (await come(await c.browser())).status == 303
        assert "link" not in made or not await opened(thief, made["link"], **SET)
        assert not await sees(thief, "/site/users") and not await sees(thief, "/accounts/acme/members")
        people = await c.services.people()
        found = await people.users.show(ROOT, user.id)
        assert (found.role, found.accounts) == (("operator", {}) if claims == OPERATOR else ("none", {"acme": "owner"}))
        assert (await come(await c.browser())).status == 303  # the person comes as before


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-9", "security.md#e-mail-addresses-and-invitations-7")
async def test_links_of_others_end_when_claims_raise_a_user(oidc_world: OpenWorld) -> None:
    """The claims are lowered again; the link stays ended. That of an operator works."""
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await invited(c, corp)
        _, made = await c.ask_api(("read", "users"), "POST", f"/users/{user.id}/link")
        for groups in (["search"], []):
            corp.person |= {"groups": groups}
            await come(await c.browser())
        assert (await people.users.show(ROOT, user.id)).accounts == {}
        assert not await opened(await c.browser(), made["link"], **SET)
        link = await people.sign_in_links.create(ROOT, user.id)
        corp.person |= {"groups": ["search"]}
        await come(await c.browser())
        assert await opened(await c.browser(), link.url, **SET)


@pytest.mark.holds("people.md#proved-addresses-10", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("by", ["mail", "link"])
@pytest.mark.parametrize("scopes", [("users",), ("read", "users")], ids=["users", "read+users"])
async def test_token_that_changes_the_address_gets_nothing_that_claims_give_later(
    oidc_world: OpenWorld, scopes: tuple[str, ...], by: str
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        (user, pia), thief = await signed_up(c, corp), await c.browser()
        status, answer = await c.ask_api(scopes, "PATCH", f"/users/{user.id}", {"email": EVIL})
        assert status == (200 if "read" in scopes else 403), answer
        made: dict[str, Any] = {}
        if by == "link":
            _, made = await c.ask_api(scopes, "POST", f"/users/{user.id}/link")
        corp.person |= RAISED
        await come(await c.browser())
        if by == "mail":
            await resets(c, mail, thief, EVIL)
        elif "link" in made:
            await opened(thief, made["link"], **SET)
        assert not await sees(thief, "/site/users") and not await sees(thief, "/accounts/acme/members")
        changed = [one for one in await people.users.list(ROOT) if one.email == EVIL]
        assert [(one.role, one.accounts) for one in changed] == ([("none", {})] if "read" in scopes else [])
        assert (await people.users.find(ROOT, PIA)).role == "operator"  # a new user, if the other one was taken
        assert await sees(pia, "/profile") is ("read" not in scopes)


@pytest.mark.holds("people.md#proved-addresses-10", "security.md#e-mail-addresses-and-invitations-7")
async def test_address_that_a_token_changes_ends_sessions_and_connections_with_what_they_gave(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True, "groups": ["search"]}
        browser = await c.browser()
        await come(browser)
        user = await people.users.find(ROOT, PIA)
        key = await people.member_keys.create(ROOT, "acme", user.id)
        await people.users.edit(ROOT, user.id, {"email": "pia.new@corp.test"})  # an operator knows what for
        assert await sees(browser, "/profile") and len(await people.identities.list(ROOT, user.id)) == 1
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "member"}
        status, _ = await c.ask_api(("read", "keys", "users"), "PATCH", f"/users/{user.id}", {"email": EVIL})
        assert status == 200 and not await sees(browser, "/profile")
        assert await people.identities.list(ROOT, user.id) == []
        assert (await people.users.show(ROOT, user.id)).accounts == {}
        record = await people.keys.find(key.id)
        assert record is not None and record.state == "revoked"
        assert {"identities.end", "members.set"} <= set(await actions(c, user.id))


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("how", ["taken over", "ended", "all ended", "by mail"])
async def test_connection_that_ends_takes_back_what_it_gave(oidc_world: OpenWorld, how: str) -> None:
    """What a person gave stays. The API keys of the memberships that end are revoked, and what the user made ends."""
    async with oidc_world() as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        await c.user("root@example.com", role="operator")
        user = await invited(c, corp)
        if how == "by mail":
            await people.users.prove(ROOT, user.id)
        await people.transactions.write(put_membership, ROOT, user, "other", "member", given_by="owner")
        corp.person |= RAISED
        browser = await c.browser()
        await come(browser)
        user = await people.users.show(ROOT, user.id)
        assert (user.role, user.accounts) == ("operator", {"acme": "owner", "other": "member"})
        keys = [await people.member_keys.create(ROOT, account, user.id) for account in ("acme", "other")]
        token = await people.tokens.create(await c.actor_in(browser), "t", ["read"])
        if how == "taken over":
            assert await opened(await c.browser(), (await people.sign_in_links.create(ROOT, user.id)).url, **SET)
        elif how == "by mail":
            assert await resets(c, mail, await c.browser(), PIA)
        elif how == "ended":
            await people.identities.end(ROOT, user.id, corp.issuer)
        else:
            assert await people.identities.end_all(ROOT, user.id) == 1
        found = await people.users.show(ROOT, user.id)
        assert (found.role, found.accounts) == ("none", {"other": "member"})
        assert await people.identities.list(ROOT, user.id) == [] and not await sees(browser, "/profile")
        states = [record.state for key in keys if (record := await people.keys.find(key.id)) is not None]
        assert states == ["revoked", "revoked" if how == "taken over" else "active"]
        assert [one.state for one in await people.tokens.list(ROOT) if one.id == token.record.id] == ["revoked"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("by", ["mail", "link", "invitation", "operator"])
async def test_connection_that_gives_the_role_of_the_last_operator_does_not_end(oidc_world: OpenWorld, by: str) -> None:
    """Nor does anybody else become this operator, although they have a new password of the user."""
    async with oidc_world() as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        user, thief = await invited(c, corp, **RAISED), await c.browser()
        if by == "mail":
            assert await resets(c, mail, thief, PIA)
        elif by == "link":
            assert await opened(thief, (await people.sign_in_links.create(ROOT, user.id)).url, **SET)
        elif by == "invitation":
            new = await people.invitations.to_account(ROOT, PIA, "other", "member")
            page, form = f"/invitation?token={new.token}", {"token": new.token, "password": NEW, "repeated": NEW}
            await thief.post("/invitation", 303, page=page, **form)
        else:
            for end in (people.identities.end_all(ROOT, user.id), people.identities.end(ROOT, user.id, corp.issuer)):
                with pytest.raises(LastOperator):
                    await end
        assert not await sees(thief, "/site/users") and not await sees(thief, "/accounts/acme/members")
        found = await people.users.show(ROOT, user.id)
        assert (found.role, found.has_password) == ("operator", by != "operator")
        again = await c.browser()
        assert (await come(again)).status == 303 and await sees(again, "/site/users")
        assert not await sees(thief, "/site/users")
        await c.user("root@example.com", role="operator")
        assert await people.identities.end_all(ROOT, user.id) == 1
        assert (await people.users.show(ROOT, user.id)).role == "none"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-9", "security.md#e-mail-addresses-and-invitations-9")
@pytest.mark.parametrize(("by", "proved"), [("mail", True), ("mail", False), ("operator", True)])
async def test_new_password_ends_a_connection_whose_provider_has_not_verified_the_address(
    oidc_world: OpenWorld, by: str, proved: bool
) -> None:
    async with oidc_world() as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        corp.person = {"sub": "pia", "email": PIA}
        user = await c.user(PIA, password=PASSWORD, is_proved=proved)

        async def set_anew() -> bool:
            browser = await c.browser()
            if by == "mail":
                return await resets(c, mail, browser, PIA)
            return await opened(browser, (await people.sign_in_links.create(ROOT, user.id)).url, **SET)

        for claims, roles in ((OWNER, {"acme": "owner"}), ({}, {})):
            corp.person = {"sub": "pia", "email": PIA, **claims}
            await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
            await come(await c.browser())
            assert (await people.users.show(ROOT, user.id)).accounts == roles
            assert await set_anew() and await people.identities.list(ROOT, user.id) == []
            assert (await people.users.show(ROOT, user.id)).accounts == {}
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "pia")
        corp.person |= {"email_verified": True, **OWNER}
        await come(await c.browser())  # now it is verified
        assert await set_anew() and len(await people.identities.list(ROOT, user.id)) == 1
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "owner"}


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("also", [False, True], ids=["operator by the other one", "operator by both"])
async def test_connection_that_ends_when_the_address_is_proved_takes_back_what_it_gave(
    oidc_world: OpenWorld, also: bool
) -> None:
    """What claims of the other provider give, too, stays; keys of memberships that end are revoked."""
    async with oidc_world() as (c, corp):
        people, other = await c.services.people(), "https://other.example.com"
        await c.user("root@example.com", role="operator")
        user = await c.user(PIA, is_proved=False)
        for issuer, subject in ((other, "mallory"), (corp.issuer, "pia")):
            await people.transactions.write(insert_identity, ROOT, user.id, issuer, subject)
        given = Granted({"acme": "owner", "other": "member"}, "operator")
        for account, role in given.accounts.items():
            user = await people.users.show(ROOT, user.id)
            await people.transactions.write(put_membership, ROOT, user, account, role, given_by="claims")
        await people.transactions.write(_make_operator, user.id)
        await people.transactions.write(note_use, other, "mallory", given)
        user = await people.users.show(ROOT, user.id)
        keys = [await people.member_keys.create(ROOT, account, user.id) for account in given.accounts]
        place = {"address": "", "user_agent": "", "by": "oidc.other", "issuer": other}
        session = await people.transactions.write(insert_session, user, **place)
        token = await people.tokens.create(session.user.actor("", session.session.id), "t", ["read"])
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True, "groups": ["search"]}
        corp.person |= OPERATOR if also else {}
        browser = await c.browser()
        assert (await come(browser)).status == 303 and await sees(browser, "/site/users") is also
        found = await people.users.show(ROOT, user.id)
        role = "operator" if also else "none"
        assert (found.proved, found.role, found.accounts) == ("provider", role, {"acme": "member"})
        assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
        states = [record.state for key in keys if (record := await people.keys.find(key.id)) is not None]
        assert states == ["active", "revoked"]
        assert [one.state for one in await people.tokens.list(ROOT) if one.id == token.record.id] == ["revoked"]
        corp.person |= {"groups": []}
        assert (await come(await c.browser())).status == 303
        assert (await people.users.show(ROOT, user.id)).accounts == {}


def _make_operator(connection: Any, user_id: str) -> None:
    connection.execute(users.update().where(users.c.id == user_id).values(role="operator"))


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-4", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("has_user", [True, False])
@pytest.mark.parametrize("later", [True, False], ids=["claims later", "claims at once"])
@pytest.mark.parametrize("verified", [True, False], ids=["verified", "not verified"])
async def test_owner_of_an_invited_mailbox_gets_no_claims_of_who_accepts_with_a_provider(
    oidc_world: OpenWorld, verified: bool, later: bool, has_user: bool
) -> None:
    """Mallory invites the own address by mail, and an admin of the provider presses the button."""
    async with oidc_world() as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        if has_user:
            await c.user("admin@corp.test", password=NEW)
            await c.user("root@example.com", role="operator")
        owner = await c.as_("mallory", other="owner")
        await owner.post("/accounts/other/members", 303, page="/accounts/other/members", email=EVIL, role="member")
        token = mail.sent[-1][1].partition("token=")[2].split()[0]
        corp.person = {"sub": "admin-1", "email": "admin@corp.test", "email_verified": verified}
        corp.person |= {} if later else RAISED
        accepted = await come(await c.browser(), page=f"/invitation?token={token}", invitation=token)
        assert accepted.status == (403 if verified else 303)
        if verified:
            assert "another address" in accepted.text
            assert EVIL not in [user.email for user in await people.users.list(ROOT)]
        else:
            user = await people.users.find(ROOT, EVIL)
            assert user.proved == "no"
        thief = await c.browser()
        is_last = not verified and not later and not has_user  # the only operator is not taken over
        assert await resets(c, mail, thief, EVIL) is not verified
        corp.person |= RAISED
        await come(await c.browser())
        assert not await sees(thief, "/site/users") and not await sees(thief, "/accounts/acme/members")
        if not verified and not is_last:
            assert await people.identities.list(ROOT, user.id) == []
            assert (await people.users.show(ROOT, user.id)).accounts == {"other": "member"}


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-4", "security.md#e-mail-addresses-and-invitations-7")
async def test_known_user_is_not_proved_by_the_mail_of_an_invitation_that_is_accepted_with_a_provider(
    oidc_world: OpenWorld,
) -> None:
    """The message may have been handed on: whose mailbox it is was not shown by whoever pressed the button."""
    async with oidc_world() as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        user = await invited(c, corp)
        new = (await people.messages.invite_to_account(ROOT, PIA, "acme", "member")).new
        assert len(mail.sent) == 1
        assert (
            await come(await c.browser(), page=f"/invitation?token={new.token}", invitation=new.token)
        ).status == 303
        found = await people.users.show(ROOT, user.id)
        assert (found.proved, found.accounts) == ("no", {"acme": "member"})

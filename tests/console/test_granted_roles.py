"""What claims give counts where the person comes by the provider, and in no session that began in another way."""

from __future__ import annotations

import time
from typing import Any

import pyotp
import pytest

from gateway.admin.granted import Granted
from gateway.errors import Forbidden, InvalidLink, NotSignedIn
from gateway.people.identities import note_use, user_of_identity
from gateway.people.memberships import put_membership
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.identity_provider import IdentityProvider
from tests.console.oidc_world import OpenWorld, back, come, oidc_world
from tests.console.test_claims_and_ways_in import EVIL, OPERATOR, OWNER, PIA, RAISED, resets, sees, signed_up
from tests.console.test_links_of_others import SET, opened
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "oidc_world"]

ROLES = pytest.mark.parametrize("claims", [OPERATOR, OWNER], ids=["operator", "owner"])
PAGES = ("/site/users", "/accounts/acme/members")


async def has_role(browser: Browser) -> bool:
    """Whether the browser sees what the operators and owners of these tests see."""
    return any([await sees(browser, page) for page in PAGES])


async def by_password(c: Console, email: str = PIA, password: str = PASSWORD) -> Browser:
    """A new browser, after an attempt with the password."""
    browser = await c.browser()
    hidden = (await browser.get("/sign-in")).hidden()
    await browser.ask("POST", "/sign-in", {**hidden, "email": email, "password": password})
    return browser


async def connects(browser: Browser, password: str, provider: str = "corp") -> int:
    """Connect on the profile; the status of the answer."""
    form = {"provider": provider, "current_password": password}
    leaving = await browser.post("/profile/identities", 200, page="/profile", **form)
    return (await browser.ask("GET", await back(browser, leaving.found(r'href="(http[^"]+)"')))).status


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
@ROLES
async def test_password_that_was_set_by_mail_before_has_nothing_of_what_claims_give_later(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        mail = await with_mail(c)
        (user, _), thief = await signed_up(c, corp), await c.browser()
        assert await resets(c, mail, thief, PIA)
        corp.person |= claims
        pia = await c.browser()
        assert (await come(pia)).status == 303 and await has_role(pia)
        assert await sees(thief, "/profile") and not await has_role(thief)
        later = await by_password(c)
        assert await sees(later, "/profile") and not await has_role(later)
        people = await c.services.people()
        found = await people.users.show(ROOT, user.id)
        assert (found.role, found.accounts) == (("operator", {}) if claims == OPERATOR else ("none", {"acme": "owner"}))


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
@ROLES
@pytest.mark.parametrize("by", ["password", "link"])
async def test_session_of_another_way_in_has_nothing_of_what_claims_give_later(
    oidc_world: OpenWorld, by: str, claims: dict[str, Any]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people = await c.services.people()
        (user, _), other = await signed_up(c, corp), await c.browser()
        form = SET if by == "password" else {"action": "sign_in"}
        assert await opened(other, (await people.sign_in_links.create(ROOT, user.id)).url, **form)
        corp.person |= claims
        pia = await c.browser()
        await come(pia)
        assert await has_role(pia) and not await has_role(other)
        hint = "More roles count when you sign in by"
        root = await c.as_("root", role="operator")
        gives = "operator" if claims == OPERATOR else "owner of acme"
        assert f"gives {gives}, which counts only there" in (await root.get(f"/site/users/{user.id}")).text
        assert hint in (await other.get("/profile")).text and hint not in (await pia.get("/profile")).text


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("when", ["before the claims", "after the claims"])
async def test_mailbox_of_an_invitation_has_nothing_of_who_accepts_with_a_password_and_connects(
    oidc_world: OpenWorld, when: str
) -> None:
    """Mallory invites an address of the own mailbox and hands the message on."""
    async with oidc_world() as (c, corp):
        mail, invited, password = await with_mail(c), "m+x@evil.test", "a password of the admin"
        mallory = await c.as_("mallory", other="owner")
        page = "/accounts/other/members"
        await mallory.post(page, 303, page=page, email=invited, role="member")
        token = mail.sent[-1][1].partition("token=")[2].split()[0]
        admin = await c.browser()
        form = {"token": token, "password": password, "repeated": password}
        await admin.post("/invitation", 303, page=f"/invitation?token={token}", name="Ada", **form)
        corp.person = {"sub": "admin", "email": "admin@corp.test", "email_verified": True, **RAISED}
        assert await connects(admin, password) == 303
        thief, again = await c.browser(), await c.browser()
        if when == "before the claims":
            assert await resets(c, mail, thief, invited)
        assert (await come(again)).status == 303 and await has_role(again)
        if when == "after the claims":
            assert await resets(c, mail, thief, invited)
        assert await sees(thief, "/profile") and not await has_role(thief)
        later = await by_password(c, invited)
        assert await sees(later, "/profile") and not await has_role(later)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14")
@ROLES
async def test_password_session_of_the_person_has_what_a_person_gave_and_nothing_of_the_claims(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    """A role that an operator makes permanent counts for each way in, and claims do not take it."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        await c.user("root@example.com", role="operator")
        user, _ = await signed_up(c, corp)
        await people.memberships.set(ROOT, user.id, "other", "owner")
        pia = await c.browser()
        assert await resets(c, mail, pia, PIA)
        corp.person |= claims
        await come(await c.browser())
        assert await sees(pia, "/accounts/other/members") and not await has_role(pia)
        if claims == OPERATOR:
            await people.users.edit(ROOT, user.id, {"role": "operator"}, permanent=True)
        else:
            await people.memberships.set(ROOT, user.id, "acme", "owner", permanent=True)
        assert not await has_role(pia)
        pia = await by_password(c)
        assert await has_role(pia)
        corp.person |= {"groups": [], "realm_access": {}}
        await come(await c.browser())
        assert await has_role(pia)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14")
@ROLES
async def test_role_that_two_providers_give_counts_in_the_sessions_of_both_and_ends_with_its_claims(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        await c.user("root@example.com", role="operator")
        rival = _rival(c, corp)
        _, pia = await signed_up(c, corp)
        people = await c.services.people()
        user = await people.users.find(ROOT, PIA)
        assert await connects(pia, "", "rival") == 303
        corp.person |= claims
        rival.person |= claims
        by_corp, by_rival = await c.browser(), await c.browser()
        await come(by_corp)
        await come(by_rival, "rival")
        assert await has_role(by_corp) and await has_role(by_rival)
        corp.person |= {"groups": [], "realm_access": {}}
        await come(await c.browser())
        assert not await has_role(by_corp)
        await come(await c.browser(), "rival")
        assert await has_role(by_rival) and not await has_role(by_corp)
        await people.identities.end(ROOT, user.id, rival.issuer)
        assert not await sees(by_rival, "/profile") and not await has_role(by_corp)


def _rival(c: Console, corp: IdentityProvider) -> IdentityProvider:
    """The other provider, with the same person."""
    provider = corp.others[0]
    provider.person = {"sub": "pia-there", "email": PIA, "email_verified": True}
    return provider


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8", "security.md#e-mail-addresses-and-invitations-9")
@pytest.mark.parametrize("proved", [True, False], ids=["proved", "not proved"])
@pytest.mark.parametrize("by", ["mail", "link"])
async def test_last_operator_gets_somebody_else_out_by_a_new_password_and_stays_an_operator(
    oidc_world: OpenWorld, by: str, proved: bool
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        if proved:
            (user, _), thief = await signed_up(c, corp), await c.browser()
            assert await resets(c, mail, thief, PIA)
        else:
            corp.person = {"sub": "pia", "email": PIA}
            user = await c.user(PIA, password=PASSWORD, is_proved=False)
            thief = await by_password(c)
            assert await connects(await by_password(c), PASSWORD) == 303
        corp.person |= OPERATOR
        await come(await c.browser())
        assert (await people.users.show(ROOT, user.id)).role == "operator"
        new, pia = "a password of the person", await c.browser()
        if by == "mail":
            mail.sent.clear()
            await pia.post("/password/forgotten", 200, page="/password/forgotten", email=PIA)
            await people.messages.finish()
            link = "?token=" + mail.sent[0][1].partition("token=")[2].split()[0]
        else:
            link = (await people.sign_in_links.create(ROOT, user.id)).url
        assert await opened(pia, link, action="password", password=new, repeated=new)
        assert not await sees(thief, "/profile") and not await sees(await by_password(c), "/profile")
        assert not await has_role(pia)
        again = await c.browser()
        assert (await come(again)).status == 303 and await has_role(again)
        assert (await people.users.show(ROOT, user.id)).role == "operator"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-8", "security.md#e-mail-addresses-and-invitations-9")
async def test_connection_of_somebody_else_ends_although_it_gives_the_last_operator_whom_another_gives_too(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        (user, _), thief = await signed_up(c, corp), await c.browser()
        assert await resets(c, mail, thief, PIA)
        rival = _rival(c, corp)
        rival.person = {"sub": "mallory", "email": EVIL, "email_verified": True, **OPERATOR}
        corp.person |= OPERATOR
        assert await connects(thief, PASSWORD, "rival") == 303
        by_corp, by_rival = await c.browser(), await c.browser()
        await come(by_corp)
        await come(by_rival, "rival")
        assert await has_role(by_corp) and await has_role(by_rival)
        made = await people.tokens.create(await c.actor_in(by_rival), "t", ["read"])
        assert await resets(c, mail, await c.browser(), PIA)
        assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
        with pytest.raises(NotSignedIn):
            await people.tokens.authenticate(made.text)
        assert (await people.users.show(ROOT, user.id)).role == "operator"
        again = await c.browser()
        await come(again)
        assert await has_role(again)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-9", "security.md#e-mail-addresses-and-invitations-9")
@pytest.mark.parametrize("by", ["mail", "link"])
async def test_connection_that_somebody_else_made_ends_with_a_new_password(oidc_world: OpenWorld, by: str) -> None:
    async with oidc_world() as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        user = await c.user(PIA, password=PASSWORD, acme="owner")
        thief = await by_password(c)
        corp.person = {"sub": "mallory", "email": EVIL, "email_verified": True}
        assert await connects(thief, PASSWORD) == 303
        pia, new = await c.browser(), "a password of the person"
        if by == "mail":
            await pia.post("/password/forgotten", 200, page="/password/forgotten", email=PIA)
            await people.messages.finish()
            token = mail.sent[-1][1].partition("token=")[2].split()[0]
        else:
            token = (await people.sign_in_links.create(ROOT, user.id)).token
        path = f"/sign-in/link?token={token}"
        assert "connection" in (await pia.get(path)).text
        await pia.post("/sign-in/link", page=path, token=token, action="password", password=new, repeated=new)
        assert not await sees(thief, "/profile") and await people.identities.list(ROOT, user.id) == []
        again = await c.browser()
        await come(again)
        assert not await sees(again, "/accounts/acme/members") and await sees(pia, "/accounts/acme/members")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-9", "security.md#e-mail-addresses-and-invitations-9")
async def test_connection_whose_provider_verified_the_address_stays_with_a_new_password(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        user, _ = await signed_up(c, corp)
        corp.person |= OWNER
        await come(await c.browser())
        pia = await c.browser()
        assert await resets(c, mail, pia, PIA)
        assert [one.issuer for one in await people.identities.list(ROOT, user.id)] == [corp.issuer]
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "owner"}
        # Another address: nobody has verified it.
        await people.users.edit(ROOT, user.id, {"email": "pia.new@corp.test"})
        await people.users.prove(ROOT, user.id)
        assert await resets(c, mail, pia, "pia.new@corp.test")
        assert await people.identities.list(ROOT, user.id) == []


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
async def test_session_that_outlives_its_connection_has_nothing_of_a_later_one(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await c.user(PIA, password=PASSWORD)
        corp.person = {"sub": "mallory", "email": EVIL, "email_verified": True}
        assert await connects(await by_password(c), PASSWORD) == 303
        thief = await c.browser()
        await come(thief)
        form = {"issuer": corp.issuer, "current_password": PASSWORD}
        await thief.post("/profile/identities/end", 303, page="/profile", **form)
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        assert await connects(await by_password(c), PASSWORD) == 303
        corp.person |= RAISED
        pia = await c.browser()
        await come(pia)
        assert await has_role(pia) and await sees(thief, "/profile") and not await has_role(thief)
        known = await people.transactions.read(user_of_identity, corp.issuer, "pia")
        assert known is not None and known[0].id == user.id


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
@pytest.mark.parametrize("by", ["password", "provider"])
async def test_invitation_has_the_rights_of_the_session_in_which_it_was_made(oidc_world: OpenWorld, by: str) -> None:
    """A person who is an operator by claims, and owns an account, invites as an owner without the provider."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        await c.user("root@example.com", role="operator")
        (user, _), browser = await signed_up(c, corp), await c.browser()
        await people.memberships.set(ROOT, user.id, "other", "owner")
        assert await resets(c, mail, browser, PIA)
        corp.person |= OPERATOR
        by_provider = await c.browser()
        await come(by_provider)
        actor = await c.actor_in(browser if by == "password" else by_provider)
        await people.invitations.to_account(actor, "bob@corp.test", "other", "member")
        viewer = await c.user("max@corp.test", role="viewer", password=PASSWORD, is_proved=False)
        new = await people.invitations.to_account(actor, viewer.email, "other", "member")
        assert await people.invitations.way_of(new.token) == ("take_over" if by == "provider" else "sign_in")
        link = None
        if by == "provider":
            link = await people.sign_in_links.create(actor, viewer.id)
            assert (await people.sign_in.owner_of_link(link.token)).id == viewer.id
        corp.person = {"sub": "bob", "email": "bob@corp.test", "email_verified": True}
        await come(await c.browser())
        # Operators add people without asking them.
        roles = {"other": "member"} if by == "provider" else {}
        assert (await people.users.find(ROOT, "bob@corp.test")).accounts == roles
        await people.identities.end(ROOT, user.id, corp.issuer)
        if link is not None:
            with pytest.raises(InvalidLink):
                await people.sign_in.owner_of_link(link.token)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
async def test_member_by_claims_neither_makes_keys_nor_leaves_the_account_without_the_provider(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people, mail = await c.services.people(), await with_mail(c)
        (user, _), thief = await signed_up(c, corp), await c.browser()
        assert await resets(c, mail, thief, PIA)
        corp.person |= {"groups": ["search"]}
        pia = await c.browser()
        await come(pia)
        key = await people.member_keys.create(await c.actor_in(pia), "acme", user.id)
        actor = await c.actor_in(thief)
        for change in (
            people.member_keys.create(actor, "acme", user.id),
            people.memberships.remove(actor, user.id, "acme"),
            people.playground_keys.text(actor, "acme"),
        ):
            with pytest.raises(Forbidden):
                await change
        assert not await sees(thief, "/accounts/acme") and await sees(pia, "/accounts/acme")
        record = await people.keys.find(key.id)
        assert record is not None and record.state == "active"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-14", "security.md#e-mail-addresses-and-invitations-7")
async def test_roles_of_a_provider_that_has_ended_do_not_count_while_the_code_is_asked_for(
    oidc_world: OpenWorld,
) -> None:
    """Somebody else has connected another provider with the user of the address, whose claims gave a membership."""
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        people = await c.services.people()
        user = await c.user(PIA, password=PASSWORD, is_proved=False)
        rival = _rival(c, corp)
        rival.person = {"sub": "mallory", "email": EVIL, "email_verified": True, "groups": ["leads"]}
        thief = await by_password(c)
        assert await connects(thief, PASSWORD, "rival") == 303
        secret = await set_up_second_factor(thief)
        await people.transactions.write(put_membership, ROOT, user, "acme", "owner", given_by="claims")
        await people.transactions.write(note_use, rival.issuer, "mallory", Granted({"acme": "owner"}))
        corp.person = {"sub": "pia", "email": PIA, "email_verified": True}
        pia = await c.browser()
        asked = await come(pia)
        code = (await pia.post("/sign-in/oidc/password", 303, page=asked.location, password=PASSWORD)).location
        form = {"code": pyotp.TOTP(secret).at(time.time() + 30)}  # one that was not used yet
        await pia.post("/sign-in/code", 303, page=code, **form)
        assert await sees(pia, "/profile") and not await has_role(pia)


async def set_up_second_factor(browser: Browser) -> str:
    """Its secret."""
    page = await browser.get("/profile/second-factor")
    secret = page.found(r'name="secret" value="([A-Z2-7]{32})"')
    form = {"secret": secret, "code": pyotp.TOTP(secret).now(), "current_password": PASSWORD}
    await browser.post("/profile/second-factor", 303, page="/profile/second-factor", **form)
    return secret


@ROLES
async def test_person_signs_in_again_in_the_same_browser_after_the_claims_have_fallen(
    oidc_world: OpenWorld, claims: dict[str, Any]
) -> None:
    async with oidc_world(signup="open", signup_account=False) as (c, corp):
        await c.user("root@example.com", role="operator")
        _, browser = await signed_up(c, corp)
        fallen: dict[str, Any] = {"groups": [], "realm_access": {}}
        for given in (claims, fallen):
            corp.person |= given
            # The page to sign in leads signed-in people on, so another page has the form's token.
            assert (await come(browser, page="/profile")).status == 303
            assert await sees(browser, "/profile") and await has_role(browser) is (given == claims)
        people = await c.services.people()
        assert len(await people.sessions.list(ROOT, (await people.users.find(ROOT, PIA)).id)) == 1

"""Whose address is proved: by a provider, by an operator on the page of the user, and over the admin API."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.user_rows import User
from gateway.database.people_tables import admin_tokens
from gateway.errors import InvalidLink, NotSignedIn, SignInFailed
from gateway.people.identities import insert_identity
from gateway.people.memberships import put_membership
from gateway.people.sessions import NewSession
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT, Console
from tests.console.oidc_world import OpenWorld, away, back, come, oidc_world, reasons

__all__ = ["database_address", "database_url", "oidc_world"]

ANN = "ann@example.com"  # whom the provider knows
NEW = "a password of the boss"
OTHER = "https://other.example.com"


async def made_by_others(c: Console, *, connects: bool = True) -> tuple[User, NewSession]:
    """The user of the address of ann, whom an owner of a small account has made and entered."""
    people = await c.services.people()
    owner = await c.user("mallory@example.com", other="owner")
    new = await people.invitations.to_account(owner.actor(""), ANN, "other", "member")
    user = await people.invitations.accept(new.token, password=PASSWORD)
    session = await people.sign_in.with_password(ANN, PASSWORD, HOME)
    assert isinstance(session, NewSession)
    if connects:
        await people.transactions.write(insert_identity, ROOT, user.id, OTHER, "mallory")
    return user, session


def set_maker(connection: Any, token_id: str, maker: str) -> None:
    """The token was made by this actor."""
    connection.execute(admin_tokens.update().where(admin_tokens.c.id == token_id).values(created_by=maker))


async def ways_in(c: Console, session: NewSession) -> list[str]:
    """By what mallory is still ann."""
    people, found = await c.services.people(), list[str]()
    browser = await c.browser()
    browser.use_session(session)
    if (await browser.ask("GET", "/profile")).status == 200:
        found.append("session")
    try:
        await people.sign_in.with_password(ANN, PASSWORD, HOME)
        found.append("password")
    except SignInFailed:
        pass
    identities = await people.identities.list(ROOT, session.user.id)
    return found + [one.issuer for one in identities if one.issuer == OTHER]


@pytest.mark.holds("people.md#proved-addresses-1")
async def test_person_whom_a_provider_sends_or_who_signs_up_is_proved(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open") as (c, _):
        await come(await c.browser())
        people = await c.services.people()
        user = await people.users.find(ROOT, ANN)
        assert user.proved == "provider"
        await people.memberships.set(ROOT, user.id, "acme", "owner")


@pytest.mark.holds("security.md#e-mail-addresses-and-invitations-1")
@pytest.mark.parametrize("invited", [False, True])
async def test_person_of_a_provider_does_not_share_a_user_whom_somebody_else_has_made(
    oidc_world: OpenWorld, invited: bool
) -> None:
    """The address is not proved: the person needs the password, or the link of an operator, which ends it."""
    async with oidc_world(signup="open") as (c, _):
        user, session = await made_by_others(c, connects=False)
        people = await c.services.people()
        if invited:
            await people.invitations.to_site(ROOT, ANN, "operator")
            await people.invitations.to_account(ROOT, ANN, "acme", "owner")
        done = await come(await c.browser())
        assert done.location.startswith("/sign-in/oidc/password")
        assert (await people.users.show(ROOT, user.id)).accounts == {"other": "member"}
        link = await people.sign_in_links.create(ROOT, user.id)
        browser = await c.browser()
        path = f"/sign-in/link?token={link.token}"
        shown = await browser.get(path)
        assert "somebody else may have signed in" in shown.text and ">Sign in</button>" not in shown.html
        form: dict[str, Any] = {"token": link.token, "action": "password", "password": NEW, "repeated": NEW}
        await browser.post("/sign-in/link", page=path, **form)
        assert await ways_in(c, session) == []
        # From now on the provider vouches for the same person, who gives the password once.
        browser = await c.browser()
        done = await come(browser)
        await browser.post("/sign-in/oidc/password", page=done.location, password=NEW)
        found = await people.users.show(ROOT, user.id)
        assert (found.proved, found.has_password) == ("provider", False)
        assert len(await people.identities.list(ROOT, user.id)) == 1
        assert (await browser.ask("GET", "/profile")).status == 200


@pytest.mark.holds("people.md#proved-addresses-6")
async def test_person_of_a_provider_ends_what_somebody_made_who_entered_by_a_link_alone(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, _):
        people = await c.services.people()
        user = await c.user(ANN, is_proved=False)
        await people.transactions.write(put_membership, ROOT, user, "acme", "owner", given_by="owner")
        user = await people.users.show(ROOT, user.id)
        link = await people.sign_in_links.create(ROOT, user.id)
        session = await people.sign_in.with_link(link.token, HOME)
        assert isinstance(session, NewSession)
        key = await people.member_keys.create(user.actor(""), "acme", user.id, name="planted")
        invited = await people.invitations.to_account(user.actor(""), "mallory@example.com", "acme", "owner")
        planted = await people.tokens.create(ROOT, "planted", ["read"])
        await people.transactions.write(set_maker, planted.record.id, user.actor("").name)
        browser = await c.browser()
        assert (await come(browser)).status == 303
        found = await people.users.show(ROOT, user.id)
        assert (found.proved, found.accounts) == ("provider", {})
        assert await ways_in(c, session) == [] and (await browser.ask("GET", "/profile")).status == 200
        record = await people.keys.find(key.id)
        assert record is not None and record.state == "revoked"
        with pytest.raises(NotSignedIn):
            await people.tokens.authenticate(planted.text)
        with pytest.raises(InvalidLink):
            await people.invitations.find(invited.token)
        await people.memberships.set(ROOT, user.id, "acme", "member")
        kept = await people.member_keys.create(ROOT, "acme", user.id, name="mine")
        assert (await come(await c.browser())).status == 303
        record = await people.keys.find(kept.id)
        assert record is not None and record.state == "active"


@pytest.mark.holds("people.md#proved-addresses-7")
async def test_address_that_a_provider_verifies_ends_what_others_set_up_at_the_next_sign_in(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world() as (c, corp):
        user, session = await made_by_others(c)
        people = await c.services.people()
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "subject-1")
        corp.person |= {"email_verified": False}
        assert (await come(await c.browser())).status == 303  # known by the subject: it proves nothing
        assert await ways_in(c, session) == ["session", "password", OTHER]
        corp.person |= {"email_verified": True, "email": "else@example.com"}
        assert (await come(await c.browser())).status == 303  # another address
        assert (await people.users.show(ROOT, user.id)).proved == "no"
        corp.person |= {"email": ANN}
        browser = await c.browser()
        assert (await come(browser)).status == 303
        assert (await people.users.show(ROOT, user.id)).proved == "provider"
        assert await ways_in(c, session) == [] and (await browser.ask("GET", "/profile")).status == 200


@pytest.mark.holds("people.md#proved-addresses-1")
@pytest.mark.parametrize(("verified", "proved"), [(True, "provider"), (False, "no")])
async def test_invitation_that_is_accepted_with_a_provider_proves_only_what_the_provider_verifies(
    oidc_world: OpenWorld, verified: bool, proved: str
) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        corp.person = {"sub": "s1", "email": ANN, "email_verified": verified}
        new = await people.invitations.to_account(ROOT, ANN, "acme", "member")
        browser = await c.browser()
        page = f"/invitation?token={new.token}"
        done = await browser.ask("GET", await back(browser, await away(browser, page=page, invitation=new.token)))
        assert done.status == 303
        assert (await people.users.find(ROOT, ANN)).proved == proved


async def test_user_of_a_provider_accepts_and_what_others_set_up_ends(oidc_world: OpenWorld) -> None:
    """The provider verifies no address; the person has the link of an operator and is known to the provider."""
    async with oidc_world() as (c, corp):
        user, session = await made_by_others(c)
        people = await c.services.people()
        await people.transactions.write(insert_identity, ROOT, user.id, corp.issuer, "s1")
        key = await people.member_keys.create(ROOT, "other", user.id, name="planted")
        corp.person = {"sub": "s1"}
        new = await people.invitations.to_site(ROOT, ANN, "operator")
        browser = await c.browser()
        page = f"/invitation?token={new.token}"
        done = await browser.ask("GET", await back(browser, await away(browser, page=page, invitation=new.token)))
        assert done.status == 303 and await ways_in(c, session) == []
        found = await people.users.show(ROOT, user.id)
        assert (found.role, found.proved, found.has_password) == ("operator", "no", False)
        record = await people.keys.find(key.id)
        assert record is not None and record.state == "revoked"
        # Somebody else at the provider does not get in by a link to this user.
        corp.person = {"sub": "s2"}
        new = await people.invitations.to_site(ROOT, ANN, "operator")
        browser = await c.browser()
        page = f"/invitation?token={new.token}"
        path = await back(browser, await away(browser, page=page, invitation=new.token))
        assert (await browser.ask("GET", path)).status == 403 and (await reasons(c))[0] == "user_exists"


@pytest.mark.holds("people.md#proved-addresses-12", "security.md#e-mail-addresses-and-invitations-4")
async def test_console_lists_users_who_are_not_proved_and_an_operator_marks_them(console: Any) -> None:
    async with console() as c:
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        user, _ = await made_by_others(c)
        for query, names in (("", (ANN, "mallory@")), ("?proved=no", (ANN,)), ("?proved=yes", ("mallory@",))):
            text = (await root.get(f"/site/users{query}")).text
            assert [name for name in (ANN, "mallory@") if name in text] == list(names), query
        assert f"{ANN} not proved" in (await root.get("/site/users")).text
        path = f"/site/users/{user.id}"
        assert "Mark the address as proved" in (await root.get(path)).text
        form = {"account": "acme", "account_role": "owner"}
        assert "is not proved" in (await root.post(f"{path}/memberships", 409, page=path, **form)).text
        form = {"role": "operator", "current_password": PASSWORD}
        assert "is not proved" in (await root.post(f"{path}/role", 409, page=path, **form)).text
        await root.post(f"{path}/prove", 401, page=path, current_password="wrong")
        viewer = await c.as_("viewer", role="viewer")
        assert "Mark the address" not in (await viewer.get(path)).text
        await root.post(f"{path}/prove", page=path, current_password=PASSWORD)
        text = (await root.get(path)).text
        assert "Address proved by an operator" in text and "not proved" not in text
        await root.post(f"{path}/memberships", page=path, account="acme", account_role="owner")


async def test_invited_user_who_is_not_proved_sets_the_password_anew_on_the_page(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        user, session = await made_by_others(c)
        new = await people.invitations.to_site(ROOT, ANN, "operator")
        path = f"/invitation?token={new.token}"
        boss = await c.browser()
        form = {"token": new.token, "name": "Boss", "password": NEW, "repeated": NEW}
        assert "API keys" in (await boss.get(path)).text
        await boss.post("/invitation", page=path, **form)
        assert await ways_in(c, session) == []
        assert (await boss.get("/site/users")).status == 200  # an operator now
        assert (await people.users.show(ROOT, user.id)).proved == "no"
        # Signed in, with a further invitation: it costs a new password, too, and the session goes on as another one.
        new = await people.invitations.to_account(ROOT, ANN, "acme", "owner")
        path = f"/invitation?token={new.token}"
        assert "Your e-mail address is not proved" in (await boss.get(path)).text
        form = {"token": new.token, "password": f"{NEW} 2", "repeated": f"{NEW} 2"}
        assert (await boss.post("/invitation", page=path, **form)).location == "/"
        assert "Overview" in (await boss.get("/accounts/acme")).text
        # The same for the link of an operator that is opened by the user.
        link = await people.sign_in_links.create(ROOT, user.id)
        path = f"/sign-in/link?token={link.token}"
        form = {"token": link.token, "action": "password", "password": NEW, "repeated": NEW}
        assert (await boss.post("/sign-in/link", page=path, **form)).location == "/"
        assert "Overview" in (await boss.get("/accounts/acme")).text


@pytest.mark.holds("people.md#who-is-who-7", "security.md#e-mail-addresses-and-invitations-8")
async def test_owner_invites_without_learning_who_is_a_user_and_reads_the_name_after_the_acceptance(
    console: Any,
) -> None:
    async with console() as c:
        people = await c.services.people()
        owner = await c.as_("owner", acme="owner")
        known = await c.user("known@example.com", password=PASSWORD)
        await people.users.edit(ROOT, known.id, {"name": "Known Person"})
        texts, tokens = set(), {}
        for email in ("known@example.com", "nobody@example.com"):
            page = await owner.post(
                "/accounts/acme/members", 200, page="/accounts/acme/members", email=email, role="owner"
            )
            tokens[email] = page.found(r"invitation\?token=([\w-]{43})")
            page_text = page.text + (await owner.get(f"/invitation?token={tokens[email]}")).text
            texts.add(page_text.replace(email, "…").replace(tokens[email], "…"))
        assert len({text.partition("until")[0] for text in texts}) == 1
        form = {"token": tokens["known@example.com"], "password": NEW, "repeated": NEW}
        await owner.post("/invitation", 403, page=f"/invitation?token={form['token']}", **form)
        members = (await owner.get("/accounts/acme/members")).text
        assert "Known Person" not in members and members.count("known@example.com") == 1  # the open invitation
        user = await c.signed_in(known)
        await user.post("/invitation", page=f"/invitation?token={form['token']}", token=form["token"])
        assert "Known Person" in (await owner.get("/accounts/acme/members")).text

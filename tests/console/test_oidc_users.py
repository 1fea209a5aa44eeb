"""Which user a person is who signs in by an identity provider, what their claims give, and who may come."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from gateway.admin.audit_trail import AuditFilter
from gateway.errors import InvalidLink, NotSignedIn
from gateway.people.identities import insert_identity
from gateway.people.newcomers import CREDITED
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT
from tests.console.oidc_world import OpenWorld, actions, away, back, come, oidc_world, reasons

__all__ = ["database_address", "database_url", "oidc_world"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-1")
async def test_user_is_found_by_verified_email_once_and_by_the_subject_from_then_on(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        user, other = await c.user("ann@example.com", acme="member"), await c.user("bob@example.com")
        browser = await c.browser()
        assert "Sign in with Corp" in (await browser.get("/sign-in")).text
        done = await come(browser, next="/profile?a=b")
        assert (done.status, done.location) == (303, "/profile?a=b")
        assert "connected Corp" in (await browser.get("/profile")).text
        assert "gateway-oidc" not in " ".join(browser.cookies)
        corp.person = corp.person | {"email": "bob@example.com"}  # the address at the provider changes
        again = await c.browser()
        await come(again)
        assert "ann@example.com" in (await again.get("/profile")).text
        corp.person = corp.person | {"sub": "subject-2", "email": "ann@example.com"}  # the address of another person
        thief = await c.browser()
        refused = await come(thief)
        assert refused.status == 403 and "Another person of this sign-in service" in refused.text
        assert "gateway-session" not in thief.cookies and await reasons(c) == ["other_identity"]
        assert (await actions(c, user.id))[:3] == ["sessions.start", "sessions.start", "identities.connect"]
        assert "identities.connect" not in await actions(c, other.id)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-1")
async def test_email_that_is_not_verified_finds_no_user(oidc_world: OpenWorld) -> None:
    said: tuple[tuple[str | None, Any], ...] = (
        ("ann@example.com", False), ("ann@example.com", None), ("ann@example.com", "no"), (None, True),
    )  # fmt: skip
    async with oidc_world(signup="open") as (c, corp):
        await c.user("ann@example.com")
        for email, verified in said:
            corp.person = {"sub": "s", "email": email, "email_verified": verified}
            # What is said of another address, or said without an address, does not count.
            corp.userinfo = {"sub": "s", "email": "bob@example.com", "email_verified": True}
            if email is None:
                corp.userinfo = {"sub": "s", "email": "ann@example.com"}
            refused = await come(await c.browser())
            assert refused.status == 403 and "verified" in refused.text, (email, verified)
        assert await reasons(c) == ["email"] * len(said)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-2")
async def test_user_with_a_password_is_asked_for_it_once(oidc_world: OpenWorld) -> None:
    """Somebody else may have created a user with this address and set the password."""
    async with oidc_world() as (c, _):
        await c.user("ann@example.com", password=PASSWORD)
        browser = await c.browser()
        done = await come(browser, next="/profile")
        assert done.location.startswith("/sign-in/oidc/password?step=") and "gateway-session" not in browser.cookies
        page = await browser.get(done.location)
        assert "ann@example.com" in page.text
        await browser.post(done.location, 401, page=done.location, password="wrong password")
        entered = await browser.post(done.location, page=done.location, password=PASSWORD)
        assert entered.location == "/profile" and "gateway-session" in browser.cookies
        assert "oidc" not in " ".join(browser.cookies)
        assert (await come(await c.browser(), next="/profile")).location == "/profile"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-12")
async def test_disabled_and_unknown_people_get_the_same_answer(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people, texts = await c.services.people(), set()
        user = await c.user("ann@example.com")
        await come(await c.browser())
        await people.users.disable(ROOT, user.id)
        for subject, email in (("subject-1", "ann@example.com"), ("subject-2", "nobody@example.com")):
            corp.person = {"sub": subject, "email": email, "email_verified": True}
            browser = await c.browser()
            refused = await come(browser)
            assert refused.status == 403 and "gateway-session" not in browser.cookies
            texts.add(refused.text.partition("Request")[0])
        assert len(texts) == 1 and await reasons(c) == ["unknown", "disabled"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-7")
async def test_claims_give_roles_and_take_back_what_they_gave(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        root = await c.user("root@example.com", role="operator")
        corp.person |= {"groups": ["search", "leads", "lost"], "realm_access": {"roles": ["admins"]}}
        browser = await c.browser()
        assert (
            await come(browser)
        ).status == 303  # the claims give something: a user is created, although nobody may come
        user = await people.users.find(ROOT, "ann@example.com")
        assert (user.accounts, user.role) == ({"acme": "owner"}, "operator")
        await people.memberships.set(ROOT, user.id, "other", "member")
        corp.person |= {"groups": "search", "realm_access": None}
        await come(await c.browser())
        user = await people.users.show(ROOT, user.id)
        assert (user.accounts, user.role) == ({"acme": "member", "other": "member"}, "none")
        key = await people.member_keys.create(ROOT, "acme", user.id, name="k")
        corp.person |= {"groups": []}
        await come(await c.browser())
        assert (await people.users.show(ROOT, user.id)).accounts == {"other": "member"}
        assert (await people.member_keys.list(ROOT, user.id)) == []
        assert [one.state for one in await c.services.store.keys.of_user("acme", user.id)] == ["revoked"], key.id
        trail = await people.audit_trail.list(ROOT, AuditFilter(actor="system:oidc.corp"), limit=100)
        assert {event.action for event in trail} >= {"users.create", "members.set", "users.edit"}
        assert (await people.users.show(ROOT, root.id)).role == "operator"


@pytest.mark.holds("people.md#who-is-who-8", "security.md#e-mail-addresses-and-invitations-6")
async def test_claim_that_lowers_a_role_ends_the_open_invitations_that_the_person_made(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        corp.person |= {"groups": ["search", "leads"], "realm_access": {"roles": ["admins"]}}
        browser = await c.browser()
        await come(browser)
        owner = await c.actor_in(browser)
        made = [
            await people.invitations.to_account(owner, "eve@example.com", "acme", "owner"),
            await people.invitations.to_account(owner, "joe@example.com", "other", "owner"),
            await people.invitations.to_site(owner, "max@example.com", "none"),
        ]
        corp.person |= {"groups": ["search"]}
        await come(await c.browser())
        with pytest.raises(InvalidLink):
            await people.invitations.find(made[0].token)
        assert (await people.invitations.find(made[1].token)).account == "other"
        corp.person |= {"realm_access": None}
        await come(await c.browser())
        for one in made:
            with pytest.raises(InvalidLink):
                await people.invitations.find(one.token)


@pytest.mark.holds("people.md#who-is-who-8", "security.md#scopes-of-admin-tokens-7")
async def test_claim_that_lowers_the_role_on_the_site_ends_the_admin_tokens_that_the_person_made(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        await c.user("root@example.com", role="operator")
        corp.person |= {"groups": ["search"], "realm_access": {"roles": ["admins"]}}
        browser = await c.browser()
        await come(browser)
        made = await people.tokens.create(await c.actor_in(browser), "t", ["read", "credits"])
        await come(await c.browser())
        assert (await people.tokens.authenticate(made.text)).may("credits")
        corp.person |= {"realm_access": None}
        await come(await c.browser())
        with pytest.raises(NotSignedIn):
            await people.tokens.authenticate(made.text)
        found = await people.audit_trail.list(ROOT, AuditFilter(object=f"token:{made.record.id}"))
        assert [(event.action, event.actor_kind) for event in found] == [
            ("tokens.revoke", "system"),
            ("tokens.create", "user"),
        ]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-7")
async def test_role_that_a_person_gave_is_not_taken_by_claims_and_the_last_operator_stays(
    oidc_world: OpenWorld,
) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        user = await c.user("ann@example.com", acme="owner")
        corp.person |= {"groups": ["search"], "realm_access": {"roles": ["admins"]}}
        await come(await c.browser())
        corp.person |= {"groups": [], "realm_access": None}
        await come(await c.browser())
        user = await people.users.show(ROOT, user.id)
        assert (user.accounts, user.role) == ({"acme": "owner"}, "operator")


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-3")
async def test_invitation_is_accepted_with_a_provider_that_verifies_no_other_address(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        corp.person = {"sub": "s1"}  # such as a provider that verifies no address
        new = await people.invitations.to_account(ROOT, "ben@example.com", "acme", "member")
        page = f"/invitation?token={new.token}"
        browser = await c.browser()
        assert "Accept with Corp" in (await browser.get(page)).text
        done = await browser.ask("GET", await back(browser, await away(browser, page=page, invitation=new.token)))
        assert done.status == 303 and "Overview" in (await browser.get("/")).text
        user = await people.users.find(ROOT, "ben@example.com")
        assert user.accounts == {"acme": "member"} and not user.has_password
        assert (await browser.ask("GET", page)).status == 404  # used
        # A person of another address gets no user of the invited one; nor does one whose address is another now.
        new = await people.invitations.to_account(ROOT, "kim@example.com", "acme", "member")
        corp.person = {"sub": "s3", "email": "eve@example.com", "email_verified": True}
        eve = await c.browser()
        assert (await come(eve, page=f"/invitation?token={new.token}", invitation=new.token)).status == 403
        assert "gateway-session" not in eve.cookies and await reasons(c) == ["other_address"]
        corp.person |= {"email": "kim@example.com"}
        assert (await come(eve, page=f"/invitation?token={new.token}", invitation=new.token)).status == 303
        # An invitation of a user leads nobody else into that user.
        await c.user("victim@example.com")
        trap = await people.invitations.to_account(ROOT, "victim@example.com", "acme", "member")
        corp.person = {"sub": "s2"}
        thief = await c.browser()
        path = await away(thief, invitation=trap.token)
        assert (await thief.ask("GET", await back(thief, path))).status == 403
        assert "gateway-session" not in thief.cookies and (await reasons(c))[0] == "user_exists"


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-3")
async def test_signed_in_user_connects_and_disconnects(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        user = await c.user("ann@example.com", password=PASSWORD)
        corp.person = {"sub": "s1"}
        browser = await c.signed_in(user)
        form = {"provider": "corp", "current_password": "wrong"}
        await browser.post("/profile/identities", 401, **form)
        shown = await browser.post("/profile/identities", 200, **form | {"current_password": PASSWORD})
        path = await back(browser, shown.found(r'href="(http[^"]+)"'))
        assert (await browser.ask("GET", path)).location == "/profile"
        assert "You can sign in with Corp now." in (await browser.get("/profile")).text
        assert (await come(await c.browser())).status == 303
        await browser.post("/profile/identities/end", issuer=corp.issuer, current_password=PASSWORD)
        assert (await come(await c.browser())).status == 403
        # Begun by one user, it does not connect another who is signed in at the end.
        shown = await browser.post("/profile/identities", 200, **form | {"current_password": PASSWORD})
        path = await back(browser, shown.found(r'href="(http[^"]+)"'))
        other = await c.signed_in(await c.user("eve@example.com"))
        browser.session.cookie_jar.update_cookies({"gateway-session": other.cookies["gateway-session"]}, URL(c.url))
        assert (await browser.ask("GET", path)).status == 403 and (await reasons(c))[0] == "session"


async def test_user_of_another_provider_is_not_found_by_email(oidc_world: OpenWorld) -> None:
    """Somebody else may have accepted the invitation of this address with an identity of their own."""
    async with oidc_world() as (c, _):
        user = await c.user("ann@example.com")
        people = await c.services.people()
        await people.identities._transactions.write(
            insert_identity, ROOT, user.id, "https://other.example.com", "somebody"
        )
        refused = await come(await c.browser())
        assert refused.status == 403 and "signs in by another service" in refused.text
        assert await reasons(c) == ["other_identity"]


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-7")
async def test_connection_that_gives_a_role_is_not_ended_by_its_user(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        user = await c.user("ann@example.com", password=PASSWORD)
        corp.person |= {"groups": ["search"]}
        browser = await c.browser()
        done = await come(browser)
        await browser.post(done.location, page=done.location, password=PASSWORD)
        page = await browser.post("/profile/identities/end", 400, issuer=corp.issuer, current_password=PASSWORD)
        assert "gives you a role" in page.text
        people = await c.services.people()
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "member"}
        corp.person |= {"groups": []}
        await come(await c.browser())
        assert (await people.users.show(ROOT, user.id)).accounts == {}
        await come(await c.browser())  # what was taken back is remembered until the next sign-in
        await browser.post("/profile/identities/end", issuer=corp.issuer, current_password=PASSWORD)


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-5")
async def test_last_way_to_sign_in_is_not_removed_by_its_user_but_by_an_operator(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        user = await c.user("ann@example.com")
        browser = await c.browser()
        await come(browser)
        page = await browser.post("/profile/identities/end", 400, issuer=corp.issuer)
        assert "set a password first" in page.text
        root = await c.signed_in(await c.user("root@example.com", role="operator", password=PASSWORD))
        path = f"/site/users/{user.id}"
        assert "Signs in with Corp" in (await root.get(path)).text
        await root.post(f"{path}/identities/end", 401, issuer=corp.issuer, current_password="wrong")
        await root.post(f"{path}/identities/end", issuer=corp.issuer, current_password=PASSWORD)
        corp.person |= {"sub": "subject-2"}  # such as a person whom the provider has created again
        assert (await come(await c.browser())).status == 303


@pytest.mark.holds("people.md#signing-in-by-an-identity-provider-5")
async def test_sessions_end_with_the_connection_through_which_they_began(oidc_world: OpenWorld) -> None:
    async with oidc_world() as (c, corp):
        people = await c.services.people()
        ann = await c.user("ann@example.com", password=PASSWORD)
        by_link, first, second = await c.signed_in(ann), await c.browser(), await c.browser()
        done = await come(first)
        await first.post(done.location, page=done.location, password=PASSWORD)
        await come(second)
        await second.post("/profile/identities/end", issuer=corp.issuer, current_password=PASSWORD)
        assert [(await one.ask("GET", "/profile")).status for one in (by_link, first, second)] == [200, 303, 200]
        bob = await c.user("bob@example.com")  # the provider is the only way in
        corp.person = {"sub": "bob", "email": "bob@example.com", "email_verified": True}
        by_link, first = await c.signed_in(bob), await c.browser()
        await come(first)
        await people.identities.end_all(ROOT, bob.id)
        assert [(await one.ask("GET", "/profile")).status for one in (by_link, first)] == [303, 303]
        await come(first)
        await people.users.disable(ROOT, bob.id)
        assert (await first.ask("GET", "/profile")).status == 303


@pytest.mark.holds("people.md#new-people-6")
async def test_people_whom_a_provider_sends_are_not_limited_by_network(oidc_world: OpenWorld) -> None:
    async with oidc_world(signup="open") as (c, corp):
        for number in range(12):
            email = f"new{number}@example.com"
            corp.person = {"sub": email, "email": email, "email_verified": True}
            assert (await come(await c.browser())).status == 303


@pytest.mark.holds("people.md#new-people-2")
async def test_open_sign_up_gives_an_account_of_ones_own(oidc_world: OpenWorld) -> None:
    settings = {"signup": "open", "signup_domains": ["example.com"], "signup_credit": "2.50"}
    async with oidc_world(**settings) as (c, corp):
        people = await c.services.people()
        invited = await people.invitations.to_account(ROOT, "bob@example.com", "acme", "member")
        corp.person |= {"name": "Ann"}
        browser = await c.browser()
        assert (await come(browser)).status == 303
        user = await people.users.find(ROOT, "ann@example.com")
        [(account, role)] = user.accounts.items()
        assert (account, role, user.name, user.role) == (f"u-{user.id[4:]}", "owner", "Ann", "none")
        assert (await c.services.store.accounts.show(account)).balance == 2_500_000_000
        assert "Overview" in (await browser.get("/")).text
        corp.person = {"sub": "s2", "email": "bob@example.com", "email_verified": True}
        assert (await come(await c.browser())).status == 303
        assert (await people.users.find(ROOT, "bob@example.com")).accounts == {
            "acme": "member"
        }  # what he is invited to
        assert invited.invitation.email == "bob@example.com"
        corp.person = {"sub": "s3", "email": "eve@evil.example", "email_verified": True}
        assert (await come(await c.browser())).status == 403


@pytest.mark.holds("people.md#new-people-5")
async def test_credits_of_new_accounts_are_bounded_for_the_whole_site(
    oidc_world: OpenWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async with oidc_world(signup="open", signup_credit="2.50", signup_credits_per_day=2) as (c, corp):
        people, balances = await c.services.people(), []
        for name in ("ann", "bob", "eve", "joe"):
            corp.person = {"sub": name, "email": f"{name}@example.com", "email_verified": True}
            assert (await come(await c.browser())).status == 303
            [account] = (await people.users.find(ROOT, f"{name}@example.com")).accounts
            balances.append((await c.services.store.accounts.show(account)).balance)
        assert balances == [2_500_000_000, 2_500_000_000, 0, 0]
        assert caplog.text.count("new accounts begin without signup_credit: console.signup_credits_per_day (2)") == 1
        store = c.services.store.store
        assert 86_000 < await store.link(CREDITED).call("TTL", CREDITED) <= 86_400


@pytest.mark.holds("people.md#new-people-1")
@pytest.mark.parametrize(("signup", "status"), [("closed", 403), ("invite", 303)])
async def test_invitation_counts_without_its_link_where_settings_say_so(
    oidc_world: OpenWorld, signup: str, status: int
) -> None:
    async with oidc_world(signup=signup) as (c, corp):
        people = await c.services.people()
        await people.invitations.to_account(ROOT, "ann@example.com", "acme", "owner")
        await people.invitations.to_site(ROOT, "ops@example.com", "operator")
        assert (await come(await c.browser())).status == status
        corp.person = {"sub": "s2", "email": "ops@example.com", "email_verified": True}
        assert (await come(await c.browser())).status == 403  # a role on the site needs the link
        found = await people.users.list(ROOT)
        assert [user.accounts for user in found] == ([{"acme": "owner"}] if status == 303 else [])

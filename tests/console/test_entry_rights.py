"""Who may lead into a user by a link that others see: who may do what the user may, and read what is stored of them."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from gateway.admin.user_rows import User
from gateway.errors import InvalidLink
from gateway.history.caller_addresses import address_mover
from gateway.ledger.caller_addresses import CallerAddresses
from gateway.people.memberships import put_membership
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT, Browser, Console
from tests.console.history import ago, calls
from tests.console.test_links_of_others import SET, Meanwhile, meanwhile, opened
from tests.console.test_sign_in import with_mail

__all__ = ["database_address", "database_url", "meanwhile"]

ANN = "ann@example.com"
NEW = "a password of the boss"
OWNER_SCOPES = ("read", "accounts", "keys", "users")


async def unproved(c: Console, account: str = "", role: Any = "owner") -> User:
    """A user whom an operator invited, who has set a password. Without `[mail]` the address is not proved."""
    people = await c.services.people()
    if account:
        new = await people.invitations.to_account(ROOT, ANN, account, role)
    else:
        new = await people.invitations.to_site(ROOT, ANN, "none")
    return await people.invitations.accept(new.token, name="Ann Secret Person", password=NEW)


async def accepted(c: Console, link: str) -> tuple[int, Browser]:
    """The status of accepting with a new password, and the browser."""
    browser, token = await c.browser(), link.partition("token=")[2]
    form = {"token": token, "password": PASSWORD, "repeated": PASSWORD, "name": ""}
    page = await browser.get(f"/invitation?token={token}")
    return (await browser.ask("POST", "/invitation", {**page.hidden(), **form})).status, browser


@pytest.mark.holds("people.md#who-may-lead-into-a-user-1", "security.md#scopes-of-admin-tokens-4")
@pytest.mark.parametrize("account", ["acme", None], ids=["of the account", "of the site"])
@pytest.mark.parametrize("mailed", [False, True], ids=["link", "mail"])
async def test_token_does_not_take_over_an_owner_whose_rights_it_has_not(
    console: Any, account: str | None, mailed: bool
) -> None:
    async with console() as c:
        people, boss = await c.services.people(), await unproved(c, "acme")
        mail = await with_mail(c) if mailed else None
        body = {"email": ANN, "role": "member", "mail": mailed}
        scopes = ("read", "keys", "users")
        status, made = await c.ask_api(scopes, "POST", "/accounts/acme/invitations", body, account=account)
        assert status == 201, made
        link = made["link"] or mail.sent[-1][1].split("\n\n")[2]  # type: ignore[union-attr]
        status, browser = await accepted(c, link)
        assert status == (303 if mailed else 403)
        assert (await browser.ask("GET", "/accounts/acme/members")).status == (200 if mailed else 303)
        found = await people.users.show(ROOT, boss.id)
        assert (found.name, found.accounts) == ("Ann Secret Person", {"acme": "owner"})


@pytest.mark.holds("people.md#who-may-lead-into-a-user-1")
@pytest.mark.parametrize(("scopes", "status"), [(OWNER_SCOPES, 303), (("read", "keys", "users"), 403)])
async def test_token_that_may_do_what_the_owner_may_leads_into_the_owner(
    console: Any, scopes: tuple[str, ...], status: int
) -> None:
    async with console() as c:
        boss = await unproved(c, "acme")
        assert (await c.ask_api(scopes, "POST", f"/users/{boss.id}/link"))[0] == (201 if status == 303 else 403)
        _, made = await c.ask_api(scopes, "POST", "/accounts/acme/invitations", {"email": ANN, "mail": False})
        assert (await accepted(c, made["link"]))[0] == status


@pytest.mark.holds("people.md#who-may-lead-into-a-user-1", "security.md#scopes-of-admin-tokens-4")
@pytest.mark.parametrize("role", ["owner", "member"])
async def test_owner_does_not_take_over_who_is_in_the_account_already(console: Any, role: str) -> None:
    """Neither a co-owner, as whom he would stay when he is removed, nor a member."""
    async with console() as c:
        people, boss = await c.services.people(), await unproved(c, "acme", role)
        owner = await c.user("mallory@example.com", acme="owner")
        browser = await c.signed_in(owner)
        page = await browser.post("/accounts/acme/members", 200, page="/accounts/acme/members", email=ANN, role="owner")
        link = page.found(r'(http[^"<\s]*/invitation\?token=[\w-]+)')
        status, thief = await accepted(c, link)
        assert status == 403 and (await thief.ask("GET", "/accounts/acme")).status == 303
        assert (await people.users.show(ROOT, boss.id)).accounts == {"acme": role}
        # The person accepts while signed in, and sets the password anew.
        mine = await c.browser()
        session = await people.sign_in.with_password(ANN, NEW, HOME)
        mine.use_session(session)
        token = link.partition("token=")[2]
        form = {"token": token, "password": PASSWORD, "repeated": PASSWORD, "name": "", "current_password": NEW}
        await mine.post("/invitation", 303, page=f"/invitation?token={token}", **form)
        assert (await people.users.show(ROOT, boss.id)).accounts == {"acme": "owner"}


async def with_history(c: Console, user: User) -> None:
    """Calls of a key of the user from an address; the membership has ended."""
    people = await c.services.people()
    await people.memberships.set(ROOT, user.id, "acme", "member")
    key = await people.member_keys.create(ROOT, "acme", user.id)
    await calls(c, ago(minutes=5), key=key.id, user=user.id)
    noted = CallerAddresses(c.services.store.store, "whole", timedelta(days=30))
    noted.note((key.id, "req_1", "203.0.113.9", "", ()))
    await noted.send()
    await address_mover(c.services.store.store, await c.services.database(), c.services.sql).move()
    await people.memberships.remove(ROOT, user.id, "acme")


@pytest.mark.holds(
    "admin-api.md#scopes-3", "people.md#who-may-lead-into-a-user-1", "security.md#scopes-of-admin-tokens-4"
)
@pytest.mark.parametrize("way", ["link", "address", "second factor"])
@pytest.mark.parametrize("scopes", [("users",), ("read", "users")], ids=["users", "read+users"])
async def test_way_into_a_user_who_has_signed_in_needs_to_read_what_is_stored_of_them(
    console: Any, scopes: tuple[str, ...], way: str
) -> None:
    """The export of a user without an account needs `read` and `users`; so does each way to sign in as the user."""
    async with console() as c:
        ann = await c.user(ANN, password=NEW)
        await with_history(c, ann)
        status, _ = await c.ask_api(scopes, "GET", f"/users/{ann.id}/export")
        assert status == (403 if scopes == ("users",) else 200)
        method, path, body = {
            "link": ("POST", f"/users/{ann.id}/link", None),
            "address": ("PATCH", f"/users/{ann.id}", {"email": "mallory@evil.test"}),
            "second factor": ("PATCH", f"/users/{ann.id}", {"second_factor": "removed"}),
        }[way]
        changed, made = await c.ask_api(scopes, method, path, body)
        assert (changed in (200, 201)) is (status == 200), made
        if way == "link" and changed == 201:
            browser = await c.browser()
            assert await opened(browser, made["link"], **SET)
            document = json.loads((await browser.post("/profile/data", 200, page="/profile")).html)
            assert document["usage"] and document["addresses"]


@pytest.mark.holds("people.md#who-may-lead-into-a-user-1")
async def test_link_of_the_scope_users_leads_into_a_user_as_whom_nobody_has_signed_in(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        status, made = await c.ask_api(("users",), "POST", "/users", {"email": ANN})
        assert status == 201 and await opened(await c.browser(), made["link"], action="sign_in")
        user = await people.users.find(ROOT, ANN)
        assert (await c.ask_api(("users",), "POST", f"/users/{user.id}/link"))[0] == 403
        assert (await c.ask_api(("users",), "PATCH", f"/users/{user.id}", {"name": "Ann"}))[0] == 200


@pytest.mark.holds("people.md#who-may-lead-into-a-user-1", "security.md#scopes-of-admin-tokens-4")
@pytest.mark.parametrize("scopes", [(), ("users",)], ids=["owner", "users"])
async def test_invitation_that_others_see_does_not_lead_into_a_user_who_has_signed_in(
    console: Any, scopes: tuple[str, ...]
) -> None:
    """A user without an account, whose name, usage and addresses the maker of the invitation may not read."""
    async with console() as c:
        people, ann = await c.services.people(), await unproved(c)
        if scopes:
            _, made = await c.ask_api(scopes, "POST", "/invitations", {"email": ANN, "role": "none", "mail": False})
            link = made["link"]
        else:
            owner = await c.as_("mallory", other="owner")
            page = "/accounts/other/members"
            shown = await owner.post(page, 200, page=page, email=ANN, role="member")
            link = shown.found(r'(http[^"<\s]*/invitation\?token=[\w-]+)')
        status, browser = await accepted(c, link)
        assert status == 403 and "Ann Secret Person" not in (await browser.ask("GET", "/profile")).html
        await people.sign_in.with_password(ANN, NEW, HOME)
        assert (await people.users.show(ROOT, ann.id)).accounts == {}


@pytest.mark.holds("people.md#who-may-lead-into-a-user-2", "security.md#scopes-of-admin-tokens-4")
async def test_invitation_and_link_work_only_with_the_rights_that_their_maker_has_when_they_are_used(
    console: Any,
) -> None:
    """Whatever took the rights away, also where nothing has ended the invitation or the link."""
    async with console() as c:
        people = await c.services.people()
        owner = await c.user("mallory@example.com", acme="owner")
        mine = await people.invitations.to_account(owner.actor(""), ANN, "acme", "owner")
        _, made = await c.ask_api(("read", "users"), "POST", "/users", {"email": "bob@example.com"})
        bob = await people.users.find(ROOT, "bob@example.com")

        def change(connection: Any) -> None:
            for statement in (
                "UPDATE memberships SET role = 'member'",
                f"INSERT INTO memberships VALUES ('{bob.id}', 'acme', 'owner', 1, 'site', '{bob.email}')",
            ):
                connection.exec_driver_sql(statement)

        await people.transactions.write(change)
        browser = await c.browser()
        assert (await browser.ask("GET", f"/invitation?token={mine.token}")).status == 404
        assert not await opened(browser, made["link"], **SET)
        assert [user.email for user in await people.users.list(ROOT)] == ["bob@example.com", "mallory@example.com"]


@pytest.mark.holds("people.md#who-may-lead-into-a-user-2")
async def test_invitation_of_a_token_gives_no_role_that_the_token_may_not_give(console: Any) -> None:
    """The service decides where it makes the invitation, for every caller."""
    async with console() as c:
        for role, scopes in (("member", ("users",)), ("owner", ("read", "keys", "users"))):
            body = {"email": ANN, "role": role, "mail": False}
            assert (await c.ask_api(scopes, "POST", "/accounts/acme/invitations", body))[0] == 403


@pytest.mark.holds("admin-api.md#scopes-4", "people.md#who-is-who-5", "security.md#scopes-of-admin-tokens-5")
@pytest.mark.parametrize("what", ["sessions", "identities"])
async def test_scope_users_does_not_read_where_operators_and_viewers_sign_in(console: Any, what: str) -> None:
    async with console() as c:
        for role in ("operator", "viewer", "none"):
            user = await c.user(f"{role}@example.com", role=role, password=PASSWORD)
            for scopes, status in (
                (("users",), 200 if role == "none" else 403),
                (("read",), 200),
                (("read", "users"), 200),
                (("keys",), 403),
            ):
                answer = await c.ask_api(scopes, "GET", f"/users/{user.id}/{what}")
                assert answer[0] == status, (role, scopes, answer)
        viewer = await c.as_("vera", role="viewer")
        root = await (await c.services.people()).users.find(ROOT, "operator@example.com")
        assert (await viewer.ask("GET", f"/site/users/{root.id}")).status == 200


@pytest.mark.holds("people.md#who-may-lead-into-a-user-2", "security.md#scopes-of-admin-tokens-4")
@pytest.mark.slow
async def test_link_that_is_used_while_the_user_gets_more_does_not_lead_into_the_user(
    console: Any, meanwhile: Meanwhile
) -> None:
    async with console() as c:
        people = await c.services.people()
        _, made = await c.ask_api(("users",), "POST", "/users", {"email": ANN})
        ann, token = await people.users.find(ROOT, ANN), made["link"].partition("token=")[2]
        async with meanwhile(
            c,
            "gateway.people.sign_in_links.lock_user",
            lambda other: other.transactions.write(put_membership, ROOT, ann, "acme", "owner", given_by="site"),
        ) as went:
            with suppress(InvalidLink):
                await people.sign_in.with_link(token, HOME)
        sessions = await people.sessions.list(ROOT, ann.id)
        assert (await people.users.show(ROOT, ann.id)).accounts == {"acme": "owner"}
        assert sessions == [] or went == [False]


@pytest.mark.holds(
    "admin-api.md#scopes-3", "people.md#who-may-lead-into-a-user-3", "security.md#scopes-of-admin-tokens-4"
)
@pytest.mark.parametrize("stored", ["calls", "membership"])
@pytest.mark.parametrize("way", ["link", "address", "invitation of an owner", "invitation of a program"])
async def test_way_into_a_user_of_whom_something_is_stored_needs_to_read_it_although_nobody_has_signed_in(
    console: Any, way: str, stored: str
) -> None:
    """A user whom an operator has imported: they called with a key, or were a member, and have left the account."""
    async with console() as c:
        people = await c.services.people()
        ann = await c.user(ANN, is_proved=False)
        if stored == "calls":
            await with_history(c, ann)
        else:
            await people.memberships.set(ROOT, ann.id, "acme", "member")
            await people.memberships.remove(ROOT, ann.id, "acme")
        if way == "link":
            assert (await c.ask_api(("users",), "POST", f"/users/{ann.id}/link"))[0] == 403
            assert (await c.ask_api(("read", "users"), "POST", f"/users/{ann.id}/link"))[0] == 201
        elif way == "address":
            path, body = f"/users/{ann.id}", {"email": "evil@evil.test"}
            assert (await c.ask_api(("users",), "PATCH", path, body))[0] == 403
            assert (await c.ask_api(("read", "users"), "PATCH", path, body))[0] == 200
        else:
            if way == "invitation of an owner":
                mallory = await c.as_("mallory", other="owner")
                page = "/accounts/other/members"
                shown = await mallory.post(page, 200, page=page, email=ANN, role="member")
                link = shown.found(r'(http[^"<\s]*/invitation\?token=[\w-]+)')
            else:
                asked, scopes = {"email": ANN, "role": "member", "mail": False}, ("read", "keys", "users")
                _, made = await c.ask_api(scopes, "POST", "/accounts/other/invitations", asked, account="other")
                link = made["link"]
            status, browser = await accepted(c, link)
            assert status == 403 and (await browser.ask("GET", "/profile")).status == 303
            assert (await people.users.show(ROOT, ann.id)).accounts == {}

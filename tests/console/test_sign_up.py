"""Signing up by e-mail: a link to the address, the same answer for every address, an account of one's own."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console.pages.sign_up import SIGN_UP
from gateway.errors import InvalidLink
from gateway.people import caused_mail, sign_in_limits, sign_ups
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Console
from tests.console.test_sign_in import Outgoing, with_mail

__all__ = ["database_address", "database_url"]

CONFIRM = "/sign-up/confirm"


async def ask(c: Console, mail: Outgoing, email: str) -> str:
    """Ask for a link; the text of the page."""
    browser = await c.browser()
    page = await browser.post(SIGN_UP, 200, page=SIGN_UP, email=email)
    await (await c.services.people()).sign_ups.finish()
    return page.text


def path_in(text: str) -> str:
    return CONFIRM + text.partition(CONFIRM)[2].split()[0]


@pytest.mark.holds("people.md#new-people-2")
async def test_person_signs_up_by_a_link_and_gets_an_account(console: Any) -> None:
    async with console(signup="open", signup_credit=1) as c:
        mail, people = await with_mail(c), await c.services.people()
        browser = await c.browser()
        assert "Sign up" in (await browser.get("/sign-in")).text
        await ask(c, mail, "Ann@Example.com")
        await ask(c, mail, "ann@example.com")
        old, new = [path_in(text) for _, text in mail.sent]
        assert (await browser.ask("GET", old)).status == 200  # the second link has not replaced it
        assert "ann@example.com" in (await browser.get(new)).text
        form = {"token": new.partition("token=")[2], "name": "Ann", "password": PASSWORD, "repeated": PASSWORD}
        await browser.post(CONFIRM, 400, page=new, **form | {"repeated": "another password"})
        await browser.post(CONFIRM, page=new, **form)
        assert "Welcome." in (await browser.get("/")).text
        user = await people.users.find(ROOT, "ann@example.com")
        [(account, role)] = user.accounts.items()
        assert role == "owner" and (await c.services.store.accounts.show(account)).balance == 1_000_000_000
        assert "ann" not in account
        for path in (old, new):
            assert (await browser.ask("GET", path)).status == 404  # used
        assert (await people.personal_data.export(ROOT, user.id))["user"]["email"] == "ann@example.com"


@pytest.mark.holds("people.md#new-people-7")
async def test_stranger_who_asks_to_sign_up_ends_no_link_of_the_holder(console: Any) -> None:
    """A stranger asks as often as the address gets messages, from ever new networks."""
    networks = 2 * caused_mail.PER_RECIPIENT + 25 * caused_mail.FIRST_ONES  # of two counts of 24 hours, and each hour
    assert networks < sign_ups.MOST_OF_ADDRESS
    async with console(signup="open") as c:
        mail, people = await with_mail(c), await c.services.people()
        await ask(c, mail, "ann@example.com")
        [(_, text)] = mail.sent
        for number in range(networks):
            await people.transactions.write(sign_ups.insert_sign_up, "ann@example.com", f"203.0.{number}.1")
        browser, path = await c.browser(), path_in(text)
        form = {"token": path.partition("token=")[2], "name": "Ann", "password": PASSWORD, "repeated": PASSWORD}
        await browser.post(CONFIRM, page=path, **form)
        assert (await browser.get("/profile")).status == 200


@pytest.mark.holds("people.md#new-people-7")
async def test_links_to_sign_up_of_an_address_end_when_a_user_has_it(console: Any) -> None:
    async with console(signup="open") as c:
        people = await c.services.people()

        async def link(email: str) -> str:
            return await people.transactions.write(sign_ups.insert_sign_up, email, "net")  # type: ignore[no-any-return]

        first, second, other = await link("ann@example.com"), await link("ann@example.com"), await link("bob@x.com")
        await people.users.create(ROOT, "Ann@example.com")
        for token in (first, second):
            with pytest.raises(InvalidLink):
                await people.sign_ups.email_of(token)
        assert await people.sign_ups.email_of(other) == "bob@x.com"


@pytest.mark.holds("people.md#new-people-7")
async def test_oldest_link_of_an_address_ends_if_there_are_too_many(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_ups, "MOST_OF_ADDRESS", 2)
    async with console(signup="open") as c:
        people, tokens = await c.services.people(), []
        for name in ("bob", "ann", "ann", "ann"):
            tokens.append(await people.transactions.write(sign_ups.insert_sign_up, f"{name}@example.com", "net"))
        with pytest.raises(InvalidLink):
            await people.sign_ups.email_of(tokens[1])
        assert [(await people.sign_ups.email_of(token))[:3] for token in tokens if token != tokens[1]] == [
            "bob",
            "ann",
            "ann",
        ]


@pytest.mark.holds("people.md#new-people-1", "security.md#the-console-3")
async def test_page_does_not_tell_who_is_a_user_or_may_come(console: Any) -> None:
    async with console(signup="open", signup_domains=["example.com"]) as c:
        mail = await with_mail(c)
        await c.user("ann@example.com", password=PASSWORD)
        texts = [await ask(c, mail, email) for email in ("ann@example.com", "ben@example.com", "eve@evil.example")]
        assert len(set(texts)) == 1
        assert [to for to, _ in mail.sent] == ["ann@example.com", "ben@example.com"]
        assert "You are already registered there" in mail.sent[0][1] and "token=" not in mail.sent[0][1]


@pytest.mark.holds("people.md#new-people-1")
async def test_with_invite_only_invited_people_get_a_link_and_what_they_are_invited_to(console: Any) -> None:
    async with console(signup="invite") as c:
        mail, people = await with_mail(c), await c.services.people()
        await people.invitations.to_account(ROOT, "ann@example.com", "acme", "member")
        assert len({await ask(c, mail, email) for email in ("ann@example.com", "ben@example.com")}) == 1
        [(to, text)] = mail.sent
        browser, path = await c.browser(), path_in(text)
        form = {"token": path.partition("token=")[2], "name": "", "password": PASSWORD, "repeated": PASSWORD}
        await browser.post(CONFIRM, page=path, **form)
        assert (await people.users.find(ROOT, to)).accounts == {"acme": "member"}


async def test_link_of_a_person_who_may_not_come_any_more_makes_no_user(console: Any) -> None:
    async with console(signup="invite") as c:
        mail, people = await with_mail(c), await c.services.people()
        new = await people.invitations.to_account(ROOT, "ann@example.com", "acme", "member")
        await ask(c, mail, "ann@example.com")
        await people.invitations.withdraw(ROOT, new.invitation.id)
        browser, path = await c.browser(), path_in(mail.sent[0][1])
        form = {"token": path.partition("token=")[2], "name": "", "password": PASSWORD, "repeated": PASSWORD}
        await browser.post(CONFIRM, 403, page=path, **form)
        assert await people.users.list(ROOT) == []


async def test_nobody_signs_up_where_it_is_closed_or_no_mail_is_sent(console: Any) -> None:
    async with console() as c:
        mail = await with_mail(c)
        browser = await c.browser()
        assert "People come by invitation" in (await browser.get(SIGN_UP)).text
        assert "Sign up" not in (await browser.get("/sign-in")).text
        await browser.post(SIGN_UP, 400, page="/sign-in", email="ann@example.com")
        assert mail.sent == []


@pytest.mark.holds("people.md#new-people-6")
async def test_people_who_sign_up_by_e_mail_are_limited_by_network(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_limits, "PER_ADDRESS", 4)
    monkeypatch.setattr(sign_ups, "PER_ADDRESS", 4)
    async with console(signup="open", signup_limit=2) as c:
        mail, people = await with_mail(c), await c.services.people()
        await people.invitations.to_account(ROOT, "eve@example.com", "acme", "member")
        for email, status in (
            ("ann@example.com", 303),
            ("ben@example.com", 303),
            ("cid@example.com", 429),
            ("eve@example.com", 303),  # invited; and the requests before have used up no attempt to sign in
        ):
            await ask(c, mail, email)
            browser, path = await c.browser(), path_in(mail.sent[-1][1])
            form = {"token": path.partition("token=")[2], "name": "", "password": PASSWORD, "repeated": PASSWORD}
            await browser.post(CONFIRM, status, page=path, **form)
        assert [user.email[:3] for user in await people.users.list(ROOT)] == ["ann", "ben", "eve"]


@pytest.mark.holds("people.md#new-people-7")
async def test_new_link_ends_the_oldest_one_of_its_network_first(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_ups, "MOST_OF_NETWORK", 2)
    monkeypatch.setattr(sign_ups, "MOST_OPEN", 3)
    async with console(signup="open") as c:
        people, works = await c.services.people(), []
        for name, network in (("ann", "1"), ("ben", "2"), ("cid", "2"), ("dan", "2"), ("eve", "3")):
            token = await people.transactions.write(sign_ups.insert_sign_up, f"{name}@example.com", network)
            works.append((name, token))
        for name, token in works:
            if name in ("ann", "ben"):
                with pytest.raises(InvalidLink):
                    await people.sign_ups.email_of(token)
            else:
                assert await people.sign_ups.email_of(token) == f"{name}@example.com"


async def test_sign_ups_are_limited(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.people.sign_in_limits.PER_SUBJECT", 2)
    async with console(signup="open") as c:
        mail, browser = await with_mail(c), await c.browser()
        await ask(c, mail, "ann@example.com")
        await browser.post(SIGN_UP, 200, page=SIGN_UP, email="ann@example.com")
        await browser.post(SIGN_UP, 429, page=SIGN_UP, email="ann@example.com")
        await (await c.services.people()).sign_ups.finish()

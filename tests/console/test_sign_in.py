"""Signing in, links, invitations, passwords and the second factor."""

from __future__ import annotations

import re
import time
from typing import Any

import pyotp
import pytest

from gateway.admin.mail import Delivery
from tests.console.client import PASSWORD, ROOT, Browser, Console

NEW = "another battery staple"


async def test_one_time_link_signs_in_by_a_button_and_not_by_being_opened(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", acme="member")
        link = await (await c.services.people()).sign_in_links.create(ROOT, user.id)
        path = link.url[link.url.index("/sign-in") :]
        browser = await c.browser()
        for _ in range(2):  # a program that checks e-mails opens it, too
            assert "ann@example.com" in (await browser.get(path)).text
        await browser.post("/sign-in/link", page=path, token=link.token, action="sign_in")
        assert "Overview" in (await browser.get("/")).text
        assert (await browser.ask("GET", path)).status == 404  # used up


async def test_link_sets_a_password_that_works_from_then_on(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com")
        link = await (await c.services.people()).sign_in_links.create(ROOT, user.id)
        path, browser = f"/sign-in/link?token={link.token}", await c.browser()
        form = {"token": link.token, "action": "password"}
        for password, repeated, problem in (("short", "short", "12 to 256"), (PASSWORD, NEW, "passwords differ")):
            page = await browser.post("/sign-in/link", 400, page=path, **form, password=password, repeated=repeated)
            assert problem in page.text
        await browser.post("/sign-in/link", page=path, **form, password=PASSWORD, repeated=PASSWORD)
        assert "Your password is set." in (await browser.get("/profile")).text
        again = await c.browser()
        await again.post("/sign-in", page="/sign-in", email="ANN@example.com", password=PASSWORD)
        assert (await again.get("/profile")).status == 200


async def test_invited_person_sets_a_password_and_is_in(console) -> None:
    async with console() as c:
        people = await c.services.people()
        new = await people.invitations.to_account(ROOT, "ben@example.com", "acme", "member")
        path, browser = f"/invitation?token={new.token}", await c.browser()
        assert "to the account acme as member" in (await browser.get(path)).text
        form = {"token": new.token, "name": "Ben", "password": PASSWORD, "repeated": PASSWORD}
        await browser.post("/invitation", page=path, **form)
        assert "Overview" in (await browser.get("/")).text
        assert (await people.users.find(ROOT, "ben@example.com")).accounts == {"acme": "member"}
        assert (await browser.ask("GET", path)).status == 404


@pytest.mark.holds("people.md#proved-addresses-8")
async def test_invited_user_accepts_while_signed_in_and_the_page_does_not_tell_who_is_a_user(console) -> None:
    async with console() as c:
        people = await c.services.people()
        user = await c.user("ann@example.com", password=PASSWORD)
        new = await people.invitations.to_account(ROOT, user.email, "acme", "owner")
        unknown = await people.invitations.to_account(ROOT, "bob@example.com", "acme", "owner")
        path, stranger = f"/invitation?token={new.token}", await c.browser()
        texts = set()
        for one in (new, unknown):
            text = (await stranger.get(f"/invitation?token={one.token}")).text
            # The two were created one after the other, sometimes in two seconds.
            texts.add(re.sub(r"until [-0-9]+ [:0-9]+ UTC", "until …", text.replace(one.invitation.email, "…")))
        assert len(texts) == 1
        form = {"page": path, "token": new.token, "password": NEW, "repeated": NEW}
        answer = await stranger.post("/invitation", 403, **form)
        assert "Sign in as this user" in answer.text and "gateway-session" not in stranger.cookies
        assert (await (await c.as_("eve")).post("/invitation", 403, **form)).status == 403
        assert (await people.users.show(ROOT, user.id)).accounts == {}
        sign_in = (await stranger.get(path)).found(r'href="(/sign-in[^"]+)"')
        answer = await stranger.post(sign_in, page=sign_in, next=path, email=user.email, password=PASSWORD)
        assert answer.location == path
        assert "Set a password" not in (await stranger.get(path)).text
        assert (await stranger.post("/invitation", page=path, token=new.token)).location == "/"
        assert (await people.users.show(ROOT, user.id)).accounts == {"acme": "owner"}


async def test_second_factor_is_set_up_asked_for_and_turned_off(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", password=PASSWORD)
        ann = await c.signed_in(user)
        page = await ann.get("/profile/second-factor")
        secret = page.found(r'name="secret" value="(\w+)"')
        assert '<svg xmlns="http://www.w3.org/2000/svg"' in page.html
        own = {"current_password": PASSWORD}
        wrong = await ann.post("/profile/second-factor", 400, secret=secret, code="000000", **own)
        assert f'value="{secret}"' in wrong.html  # the app need not be set up again
        totp, now = pyotp.TOTP(secret), int(time.time())
        first, second = totp.at(now), totp.at(now + 30)
        await ann.post("/profile/second-factor", secret=secret, code=first, **own)
        assert (await (await c.services.people()).users.show(ROOT, user.id)).has_second_factor

        browser = await c.browser()
        answer = await browser.post("/sign-in", page="/sign-in", email=user.email, password=PASSWORD, next="/profile")
        assert answer.location.startswith("/sign-in/code?step=") and "gateway-session" not in browser.cookies
        await browser.post("/sign-in/code", 401, page=answer.location, code=first)  # it was used for the set-up
        done = await browser.post("/sign-in/code", page=answer.location, code=second, next="/profile")
        assert done.location == "/profile" and "gateway-session" in browser.cookies
        assert "second-step" not in " ".join(browser.cookies)
        await ann.post("/profile/second-factor/off", 401, code=second, **own)
        assert "asks for a code" in (await ann.get("/profile")).text


class Outgoing:
    """A mail server that takes everything."""

    is_set_up = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def send(self, to: str, subject: str, text: str, *, sender: str = "") -> Delivery:
        self.sent.append((to, text))
        return Delivery(True)


async def with_mail(c: Console) -> Outgoing:
    people: Any = await c.services.people()
    mail = people.mail = Outgoing()
    return mail


async def test_forgotten_password_is_replaced_by_a_link_that_comes_by_mail(console) -> None:
    async with console() as c:
        mail = await with_mail(c)
        user = await c.user("ann@example.com", password=PASSWORD)
        old = await c.signed_in(user)
        texts = set()
        for email in ("nobody@example.com", "ann@example.com"):
            browser = await c.browser()
            page = await browser.post("/password/forgotten", 200, page="/password/forgotten", email=email)
            texts.add(page.text)
        await (await c.services.people()).messages.finish()
        assert len(texts) == 1 and [to for to, _ in mail.sent] == ["ann@example.com"]
        path = "/sign-in/link" + mail.sent[0][1].partition("/sign-in/link")[2].split()[0]
        token = path.partition("token=")[2]
        assert ">Sign in</button>" not in (await browser.get(path)).html  # such a link only sets a password
        form = {"token": token, "action": "password", "password": NEW, "repeated": NEW}
        await browser.post("/sign-in/link", page=path, **form)
        assert (await old.ask("GET", "/profile")).location.startswith("/sign-in")
        await (await c.browser()).post("/sign-in", page="/sign-in", email=user.email, password=NEW)


async def test_without_mail_the_page_says_whom_to_ask(console) -> None:
    async with console() as c:
        browser = await c.browser()
        assert "Ask your operator" in (await browser.get("/password/forgotten")).text
        assert "Ask your operator" in (await browser.get("/sign-in")).text


async def test_password_is_changed_with_the_current_one_and_ends_other_sessions(console) -> None:
    async with console() as c:
        user = await c.user("ann@example.com", password=PASSWORD)
        here, there = await c.signed_in(user), await c.signed_in(user)
        wrong = {"current_password": "wrong", "password": NEW, "repeated": NEW}
        assert "The current password is wrong" in (await here.post("/profile/password", 401, **wrong)).text
        await here.post("/profile/password", current_password=PASSWORD, password=NEW, repeated=NEW)
        assert (await here.get("/profile")).status == 200
        assert (await there.ask("GET", "/profile")).status == 303


async def test_sessions_are_listed_and_ended(console) -> None:
    async with console() as c:
        user, eve = await c.user("ann@example.com"), await c.user("eve@example.com")
        here, there, more = [await c.signed_in(user) for _ in range(3)]
        foreign = await session_of(c, eve.id)
        page = await here.get("/profile")
        assert page.text.count("this one") == 1
        await here.post(f"/profile/sessions/{foreign}/end", 404)
        ids = re.findall(r"/profile/sessions/(ses_\w+)/end", page.html)
        people = await c.services.people()
        [first] = [one for one in ids if one == (await people.sessions.authenticate(token(there))).session.id]
        await here.post(f"/profile/sessions/{first}/end")
        assert (await there.ask("GET", "/profile")).status == 303 and (await more.get("/profile")).status == 200
        await here.post("/profile/sessions/end-others")
        assert (await more.ask("GET", "/profile")).status == 303
        await here.post("/sign-out")
        assert (await here.ask("GET", "/profile")).status == 303 and "gateway-session" not in here.cookies


async def session_of(c: Console, user_id: str) -> str:
    people = await c.services.people()
    await c.signed_in(await people.users.show(ROOT, user_id))
    return (await people.sessions.list(ROOT, user_id))[0].id


def token(browser: Browser) -> str:
    return browser.cookies["gateway-session"]


@pytest.mark.holds("console.md#first-steps-1")
async def test_sign_in_page_says_how_to_make_the_first_operator_until_there_is_one(console) -> None:
    async with console() as c:
        browser, hint = await c.browser(), "gateway users create EMAIL --operator"
        await c.user("eva@example.com", role="viewer")
        shown = await browser.get("/sign-in")
        assert hint in shown.text and "eva" not in shown.html
        first = await c.user("ann@example.com", role="operator")
        assert hint not in (await browser.get("/sign-in")).text
        assert first.role == "operator"

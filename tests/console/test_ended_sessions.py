"""A session that ends while a request waits: the request changes nothing more."""

from __future__ import annotations

import asyncio
from typing import Any

import pyotp
import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.user_rows import User
from gateway.errors import SignInFailed, SignInLimited
from gateway.people.invitations import Invitations
from gateway.people.password_hashes import PasswordHashes
from gateway.people.sessions import NewSession
from gateway.people.sign_in import Client
from gateway.people.sign_in_limits import PER_SUBJECT
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, back, come, oidc_world
from tests.delays import time_passes
from tests.polling import until

__all__ = ["database_address", "database_url", "oidc_world"]

BOSS = "boss@example.com"
NEW = "a password of the boss"


class Held:
    """Holds calls of a method back from the one with this number on, until `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, *, number: int = 1) -> None:
        self.reached, self._go, self._calls = asyncio.Event(), asyncio.Event(), 0
        method = getattr(kind, name)

        async def held(this: Any, *values: Any, **named: Any) -> Any:
            self._calls += 1
            if self._calls >= number:
                self.reached.set()
                await self._go.wait()
            return await method(this, *values, **named)

        monkeypatch.setattr(kind, name, held)

    def go_on(self) -> None:
        """The calls that wait, and all further ones, go on."""
        self._go.set()


async def entered_by_others(c: Console) -> tuple[User, Browser]:
    """The user of the address of the boss, whom an owner of another account has made; and that owner's browser."""
    people = await c.services.people()
    owner = await c.user("mallory@example.com", other="owner")
    new = await people.invitations.to_account(owner.actor(""), BOSS, "other", "member")
    user = await people.invitations.accept(new.token, password=PASSWORD)
    return user, await signed_in(c, BOSS)


async def signed_in(c: Console, email: str) -> Browser:
    browser = await c.browser()
    session = await (await c.services.people()).sign_in.with_password(email, PASSWORD, HOME)
    assert isinstance(session, NewSession)
    browser.use_session(session)
    return browser


async def takes_over(c: Console, user: User, how: str = "invitation") -> None:
    """The boss comes, or an operator ends what others have."""
    people = await c.services.people()
    if how == "invitation":
        invitation = await people.invitations.to_site(ROOT, BOSS, "operator")
        await people.invitations.accept(invitation.token, password=NEW)
    elif how == "link":
        link = await people.sign_in_links.create(ROOT, user.id)
        await people.sign_in.reset_password(link.token, NEW, HOME)
    else:
        await people.users.disable(ROOT, user.id)
        await people.users.enable(ROOT, user.id)


@pytest.mark.holds("people.md#who-is-who-9")
@pytest.mark.parametrize("how", ["invitation", "link", "disabled and enabled"])
async def test_connection_with_a_provider_that_is_under_way_ends_with_the_session(
    oidc_world: OpenWorld, how: str
) -> None:
    async with oidc_world() as (c, corp):
        user, browser = await entered_by_others(c)
        corp.person = {"sub": "mallory", "email": "mallory@evil.test", "email_verified": True}
        left = await browser.post(
            "/profile/identities", 200, page="/profile", provider="corp", current_password=PASSWORD
        )
        path = await back(browser, left.found(r'href="(http[^"]+)"'))
        corp.fetched.clear()
        corp.go_on.clear()
        coming = asyncio.create_task(browser.ask("GET", path))
        await until(lambda: "token" in corp.fetched)
        await takes_over(c, user, how)
        corp.go_on.set()
        await coming
        assert await (await c.services.people()).identities.list(ROOT, user.id) == []
        assert (await come(await c.browser())).status == 403


@pytest.mark.holds("people.md#who-is-who-9")
async def test_import_stops_when_its_session_ends(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as c:
        boss = await c.user(BOSS, role="operator", password=PASSWORD)
        browser = await signed_in(c, BOSS)
        held = Held(monkeypatch, Accounts, "create", number=2)
        content = "name\n" + "".join(f"acc-{number:03}\n" for number in range(100))
        form = {"kind": "accounts", "content": content, "current_password": PASSWORD}
        importing = asyncio.create_task(browser.ask("POST", "/site/import/confirm", {**await hidden(browser), **form}))
        await held.reached.wait()
        before = len(await c.services.store.ledger.accounts())
        await takes_over(c, boss, "link")
        held.go_on()
        await importing
        assert len(await c.services.store.ledger.accounts()) <= before + 50  # an import asks again after so many rows


async def hidden(browser: Browser) -> dict[str, str]:
    return (await browser.get("/site/import")).hidden()


@pytest.mark.holds("people.md#who-is-who-9")
async def test_second_factor_is_not_set_up_after_the_session_has_ended(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        user, browser = await entered_by_others(c)
        secret = pyotp.random_base32()
        opened = await browser.get("/profile/second-factor")
        held = Held(monkeypatch, PasswordHashes, "verify")
        form = {"secret": secret, "code": pyotp.TOTP(secret).now(), "current_password": PASSWORD}
        setting = asyncio.create_task(browser.ask("POST", "/profile/second-factor", {**opened.hidden(), **form}))
        await held.reached.wait()
        await takes_over(c, user)
        held.go_on()
        await setting
        assert isinstance(await (await c.services.people()).sign_in.with_password(BOSS, NEW, HOME), NewSession)


@pytest.mark.holds("people.md#who-is-who-9")
async def test_invitation_is_not_made_after_the_session_has_ended(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        people = await c.services.people()
        ann = await c.user("ann@example.com", acme="owner")
        browser = await c.signed_in(ann)
        opened = await browser.get("/accounts/acme/members")
        held = Held(monkeypatch, Invitations, "to_account")
        form = {**opened.hidden(), "email": "eve@example.com", "role": "owner"}
        inviting = asyncio.create_task(browser.ask("POST", "/accounts/acme/members", form))
        await held.reached.wait()
        await people.sessions.end_all(ROOT, ann.id)
        held.go_on()
        assert "invitation?token=" not in (await inviting).html
        assert await people.invitations.list(ROOT, "acme") == []


@pytest.mark.holds("people.md#who-is-who-9")
async def test_key_that_is_made_while_the_session_ends_is_revoked(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        people = await c.services.people()
        invitation = await people.invitations.to_account(ROOT, BOSS, "acme", "owner")
        user = await people.invitations.accept(invitation.token, password=PASSWORD)
        browser = await signed_in(c, BOSS)
        opened = await browser.get("/accounts/acme/keys/new")
        held = Held(monkeypatch, Keys, "create")
        making = asyncio.create_task(
            browser.ask("POST", "/accounts/acme/keys/new", {**opened.hidden(), "name": "planted"})
        )
        await held.reached.wait()
        await takes_over(c, user, "link")
        held.go_on()
        assert "sk-" not in (await making).html
        keys = await people.member_keys.list(ROOT, user.id, "acme")
        assert [key.state for key in keys] == ["revoked"]


@pytest.mark.holds("people.md#signing-in-1")
async def test_browser_that_was_known_before_the_password_was_set_is_known_no_more(console: Any) -> None:
    """Else who has set up a user for somebody else guesses the next password apart from all others, for 90 days."""
    async with console() as c:
        people = await c.services.people()
        user, _ = await entered_by_others(c)
        session = await people.sign_in.with_password(BOSS, PASSWORD, HOME)
        assert isinstance(session, NewSession)
        known = [await people.sign_in.remember(session.user, HOME) for _ in range(3)]
        await time_passes(1.1)  # the cookies have whole seconds
        await takes_over(c, user)
        attempts = 0
        for number, cookie in enumerate(known):
            client = Client(f"198.51.100.{number}", "a browser", cookie)
            for _ in range(PER_SUBJECT):
                try:
                    await people.sign_in.with_password(BOSS, "a guess", client)
                except SignInFailed:
                    attempts += 1
                except SignInLimited:
                    break
        assert attempts == PER_SUBJECT


@pytest.mark.holds("people.md#signing-in-1")
async def test_own_new_password_keeps_the_browser_known(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        await c.user("ann@example.com", password=PASSWORD)
        browser = await signed_in(c, "ann@example.com")
        form: dict[str, Any] = {"current_password": PASSWORD, "password": NEW, "repeated": NEW}
        await browser.post("/profile/password", page="/profile", **form)
        mine = structs.replace(HOME, address="", known_browser=browser.cookies["gateway-known-browser"])
        for number in range(PER_SUBJECT):
            with pytest.raises(SignInFailed):
                await people.sign_in.with_password("ann@example.com", "a guess", Client(f"198.51.100.{number}"))
        with pytest.raises(SignInLimited):
            await people.sign_in.with_password("ann@example.com", NEW, Client("203.0.113.7"))
        assert isinstance(await people.sign_in.with_password("ann@example.com", NEW, mine), NewSession)

"""A link that somebody weaker has made never leads into a user who has got more, whatever happens after it was made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from typing import Any

import pytest

from gateway.errors import AddressNotProved, Forbidden, InvalidLink
from gateway.people.people import People
from gateway.services.services import AdminServices
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import HOME, PASSWORD, ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, come, oidc_world

__all__ = ["database_address", "database_url", "oidc_world"]

BOSS = "boss@example.com"
ANN = "ann@example.com"  # whom the provider knows
NEW = "a password of the boss"


async def asked(c: Console, browser: Browser, scope: str, path: str, document: dict[str, Any] | None = None) -> Any:
    """The answer of the admin API to a new token with one scope."""
    people = await c.services.people()
    token = await people.tokens.create(ROOT, "attacker", [scope])
    headers = {"Authorization": f"Bearer {token.text}"}
    async with browser.session.post(f"{c.url}/admin/v1{path}", headers=headers, json=document) as answer:
        assert answer.status == 201, await answer.text()
        return await answer.json()


async def opened(browser: Browser, link: str, **form: str) -> bool:
    """Whether the link leads into a session, by its button or with a new password."""
    path = "/sign-in/link?" + link.partition("?")[2]
    shown = await browser.ask("GET", path)
    if shown.status != 200:
        return False
    form = {"token": link.partition("token=")[2], **form}
    await browser.ask("POST", "/sign-in/link", {**shown.hidden(), **form})
    return (await browser.ask("GET", "/profile")).status == 200


SET = {"action": "password", "password": PASSWORD, "repeated": PASSWORD}


@pytest.mark.holds("people.md#proved-addresses-9", "security.md#scopes-of-admin-tokens-6")
async def test_link_of_a_token_does_not_lead_into_the_user_after_the_holder_accepted(console: Any) -> None:
    async with console() as c:
        attacker, boss, people = await c.browser(), await c.browser(), await c.services.people()
        made = await asked(c, attacker, "users", "/users", {"email": BOSS})
        new = await people.invitations.to_site(ROOT, BOSS, "operator")
        form = {"token": new.token, "password": NEW, "repeated": NEW}
        await boss.post("/invitation", page=f"/invitation?token={new.token}", **form)
        assert (await people.users.find(ROOT, BOSS)).role == "operator"
        assert not await opened(attacker, made["link"], **SET)
        assert (await boss.ask("GET", "/profile")).status == 200
        await people.sign_in.with_password(BOSS, NEW, HOME)


@pytest.mark.holds("people.md#proved-addresses-9", "security.md#scopes-of-admin-tokens-6")
@pytest.mark.parametrize("is_opened", [False, True])
async def test_user_for_whom_a_token_made_a_link_gets_no_role_although_the_address_was_proved(
    console: Any, is_opened: bool
) -> None:
    async with console() as c:
        attacker, people = await c.browser(), await c.services.people()
        user = await c.user(BOSS)
        made = await asked(c, attacker, "users", f"/users/{user.id}/link")
        if is_opened:
            assert await opened(attacker, made["link"], action="sign_in")
        assert (await people.users.show(ROOT, user.id)).proved == "no"
        with pytest.raises(AddressNotProved):
            await people.users.edit(ROOT, user.id, {"role": "operator"})
        with pytest.raises(AddressNotProved):
            await people.memberships.set(ROOT, user.id, "acme", "owner")


@pytest.mark.holds("people.md#proved-addresses-9")
async def test_link_of_a_token_ends_when_the_address_is_proved(console: Any) -> None:
    async with console() as c:
        attacker, people = await c.browser(), await c.services.people()
        made = await asked(c, attacker, "users", "/users", {"email": BOSS})
        user = await people.users.find(ROOT, BOSS)
        await people.users.prove(ROOT, user.id)
        await people.users.edit(ROOT, user.id, {"role": "operator"})
        assert not await opened(attacker, made["link"], action="sign_in")


@pytest.mark.holds("people.md#proved-addresses-9")
async def test_link_of_an_operator_stays_when_the_address_is_proved(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        user = await c.user(BOSS, is_proved=False)
        link = await people.sign_in_links.create(ROOT, user.id)
        assert (await people.users.prove(ROOT, user.id)).is_proved
        assert await opened(await c.browser(), link.url, action="sign_in")
        assert (await people.users.show(ROOT, user.id)).is_proved


@pytest.mark.holds("people.md#proved-addresses-10")
async def test_provider_proves_no_address_that_the_user_got_while_the_password_was_asked_for(
    oidc_world: OpenWorld,
) -> None:
    """The attacker is verified as ann. A token with `users` gives that user the address of the boss meanwhile."""
    async with oidc_world() as (c, _):
        people = await c.services.people()
        user = await c.user(ANN, is_proved=False, password=PASSWORD)
        browser = await c.browser()
        done = await come(browser)
        assert done.location.startswith("/sign-in/oidc/password")
        await people.users.edit(ROOT, user.id, {"email": BOSS})
        await browser.post("/sign-in/oidc/password", 403, page=done.location, password=PASSWORD)
        found = await people.users.show(ROOT, user.id)
        assert (found.email, found.proved) == (BOSS, "no")
        assert not await people.identities.list(ROOT, user.id)


#: What another process does: `meanwhile(console, name, work)`.
Meanwhile = Callable[[Console, str, Callable[[People], Awaitable[object]]], AbstractAsyncContextManager[list[bool]]]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Before the first call of a function of this name, another process does something; it waits at most a second.

    The list says whether it was done then. SQLite has one writer, so there it is done afterwards.
    """

    @asynccontextmanager
    async def patched(c: Console, name: str, work: Callable[[People], Awaitable[object]]) -> AsyncIterator[list[bool]]:
        other, loop, tasks = AdminServices(c.services.settings, c.services.store.store), asyncio.get_running_loop(), []
        went: list[bool] = []
        people = await other.people()

        async def begin() -> None:
            tasks.append(asyncio.ensure_future(work(people)))
            done, _ = await asyncio.wait(tasks, timeout=1.0)
            went.append(bool(done))

        module, _, function = name.rpartition(".")
        original = getattr(import_module(module), function)

        def later(*args: Any, **kwargs: Any) -> Any:
            if not tasks:
                asyncio.run_coroutine_threadsafe(begin(), loop).result()
            return original(*args, **kwargs)

        monkeypatch.setattr(name, later)
        try:
            yield went
        finally:
            await asyncio.gather(*tasks, return_exceptions=True)
            await other.close()

    return patched


@pytest.mark.holds("people.md#proved-addresses-10")
@pytest.mark.slow
async def test_link_by_mail_proves_no_address_that_the_user_got_while_it_was_made(
    console: Any, meanwhile: Meanwhile
) -> None:
    async with console() as c:
        people, user = await c.services.people(), await c.user(ANN, is_proved=False)
        async with meanwhile(
            c, "gateway.people.sign_in_links.insert_link", lambda p: p.users.edit(ROOT, user.id, {"email": BOSS})
        ):
            made = await people.sign_in_links.create_for_reset(ANN)
        assert made is not None  # it goes to the address of before
        with pytest.raises(InvalidLink):
            await people.sign_in.reset_password(made.token, PASSWORD, HOME)
        assert (await people.users.show(ROOT, user.id)).proved == "no"


@pytest.mark.holds("people.md#proved-addresses-10")
@pytest.mark.slow
async def test_invitation_by_mail_proves_no_address_that_the_user_got_meanwhile(
    console: Any, meanwhile: Meanwhile
) -> None:
    async with console() as c:
        people, user = await c.services.people(), await c.user(ANN, is_proved=False)
        new = await people.invitations.to_account(ROOT, ANN, "acme", "member")
        await people.invitations.note_mailed(new.invitation.id, True)
        async with meanwhile(
            c, "gateway.people.accepting.lock_user", lambda p: p.users.edit(ROOT, user.id, {"email": BOSS})
        ):
            with suppress(InvalidLink):
                await people.invitations.accept(new.token, password=PASSWORD)
        found = await people.users.show(ROOT, user.id)
        assert (found.email, found.proved) == (BOSS, "no")


@pytest.mark.holds("security.md#scopes-of-admin-tokens-6")
@pytest.mark.slow
async def test_address_of_a_user_who_gets_a_role_at_this_moment_is_not_changed_by_a_token(
    console: Any, meanwhile: Meanwhile
) -> None:
    async with console() as c:
        people, user = await c.services.people(), await c.user(BOSS)
        attacker = await people.tokens.authenticate((await people.tokens.create(ROOT, "t", ["users"])).text)
        async with meanwhile(
            c, "gateway.people.users.lock_user", lambda p: p.memberships.set(ROOT, user.id, "acme", "owner")
        ) as went:
            with suppress(Forbidden):
                await people.users.edit(attacker, user.id, {"email": "mine@evil.test"})
        found = await people.users.show(ROOT, user.id)
        assert found.email == BOSS or went == [False]

"""Answers of forms and requests that write: once rights have ended, nothing is shown. What is done stays done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.imports.users import UserImport
from gateway.people.sign_in_links import SignInLinks
from gateway.people.tokens import Tokens
from gateway.services import audit_runs
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Console, Shown
from tests.console.test_late_answers import LONG
from tests.delays import time_passes
from tests.polling import until

__all__ = ["database_address", "database_url"]

MANY = "account,name\n" + "".join(f"acme,service-{number}\n" for number in range(20))
HEADERS = {"Idempotency-Key": "invoice-7"}


class Gate:
    """Holds the calls of an asynchronous function until `go` is set."""

    def __init__(self) -> None:
        self.go, self.calls = asyncio.Event(), 0

    def put(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False) -> None:
        """Hold them before they begin, or `after` their work."""
        own = getattr(owner, name)

        async def held(*args: Any, **rest: Any) -> Any:
            self.calls += 1
            result = await own(*args, **rest) if after else None
            async with asyncio.timeout(60.0):
                await self.go.wait()
            return result if after else await own(*args, **rest)

        monkeypatch.setattr(owner, name, held)


async def end(c: Console, how: str, user_id: str) -> None:
    people = await c.services.people()
    if how == "disabled":
        await people.users.disable(ROOT, user_id)
    elif how == "demoted":
        await people.users.edit(ROOT, user_id, {"role": "none"})
    elif how == "signed out":
        await people.sessions.end_all(ROOT, user_id)


async def operator(c: Console, path: str, form: dict[str, str]) -> tuple[str, asyncio.Task[Shown]]:
    """A second operator, who sends a form: the id, and the answer."""
    await c.user("root@example.com", role="operator")
    rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
    browser = await c.signed_in(rob)
    form = {"xsrf": await browser.token(), "current_password": PASSWORD, **form}
    return rob.id, asyncio.create_task(browser.ask("POST", path, form))


async def ask(c: Console, token: str, method: str, path: str, **rest: Any) -> tuple[int, Any, Any]:
    headers = {"Authorization": f"Bearer {token}", **rest.pop("headers", {})}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{c.url}/admin/v1{path}", headers=headers, **rest) as answer,
    ):
        return answer.status, await answer.json(), answer.headers


@pytest.mark.holds("people.md#who-is-who-10", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["disabled", "demoted", "signed out", "stays"])
async def test_result_of_a_form_is_shown_only_if_the_rights_stay(
    console: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with console() as c:
        gate = Gate()
        gate.put(monkeypatch, audit_runs, "audit_ledger")
        user, asking = await operator(c, "/site/audit", {"account": ""})
        await until(lambda: gate.calls)
        await time_passes(LONG)
        await end(c, how, user)
        gate.go.set()
        shown = await asking
        assert (shown.status, shown.location[:8]) == {
            "disabled": (303, "/sign-in"),
            "demoted": (403, ""),
            "signed out": (303, "/sign-in"),
            "stays": (200, ""),
        }[how]


@pytest.mark.holds("people.md#who-is-who-10", "security.md#scopes-of-admin-tokens-8")
async def test_dry_run_of_an_import_is_not_shown_after_the_rights_have_ended(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says who is a user."""
    async with console() as c:
        gate = Gate()
        gate.put(monkeypatch, UserImport, "run")
        content = "email,name\nroot@example.com,Other\n"
        user, asking = await operator(c, "/site/import", {"kind": "users", "content": content})
        await until(lambda: gate.calls)
        await time_passes(LONG)
        await end(c, "signed out", user)
        gate.go.set()
        assert (await asking).location.startswith("/sign-in")


@pytest.mark.holds("admin-api.md#requests-and-answers-7", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("is_revoked", [True, False])
async def test_answer_to_a_post_that_took_long_is_sent_only_to_a_valid_token(
    console: Any, monkeypatch: pytest.MonkeyPatch, is_revoked: bool
) -> None:
    async with console() as c:
        gate, people = Gate(), await c.services.people()
        gate.put(monkeypatch, audit_runs, "audit_ledger")
        token = await people.tokens.create(ROOT, "t", ["read"])
        asking = asyncio.create_task(ask(c, token.text, "POST", "/audits", json={}))
        await until(lambda: gate.calls)
        await time_passes(LONG)
        if is_revoked:
            await people.tokens.revoke(ROOT, token.record.id)
        gate.go.set()
        status, document, _ = await asking
        assert (status, list(document) == ["error"]) == ((401, True) if is_revoked else (200, False))


@pytest.mark.holds("admin-api.md#requests-and-answers-7", "security.md#money-1")
async def test_credit_whose_answer_was_refused_is_booked_once_and_its_repetition_says_so(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        gate, people = Gate(), await c.services.people()
        tokens = [await people.tokens.create(ROOT, "t", ["credits", "read"]) for _ in range(2)]
        before = (await c.services.store.accounts.show("acme")).balance
        gate.put(monkeypatch, Accounts, "credit", after=True)
        credit = ("POST", "/accounts/acme/credits")
        asking = asyncio.create_task(ask(c, tokens[0].text, *credit, json={"amount": "5"}, headers=HEADERS))
        await until(lambda: gate.calls)
        await time_passes(LONG)
        await people.tokens.revoke(ROOT, tokens[0].record.id)
        gate.go.set()
        status, document, _ = await asking
        assert (status, list(document)) == (401, ["error"])
        status, document, headers = await ask(c, tokens[1].text, *credit, json={"amount": "5"}, headers=HEADERS)
        assert (status // 100, headers["Idempotent-Replayed"]) == (2, "true")
        assert (await c.services.store.accounts.show("acme")).balance == before + 5 * 10**9


@pytest.mark.parametrize("path", ["/token", "/tokens/{id}/revoke"])
async def test_token_that_ends_itself_gets_the_answer_however_long_it_took(
    console: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with console() as c:
        gate, people = Gate(), await c.services.people()
        scopes = ["read", "accounts", "keys", "credits", "users", "config"]
        token = await people.tokens.create(ROOT, "t", scopes)
        gate.put(monkeypatch, Tokens, "revoke", after=True)
        method = "DELETE" if path == "/token" else "POST"
        asking = asyncio.create_task(ask(c, token.text, method, path.format(id=token.record.id)))
        await until(lambda: gate.calls)
        await time_passes(LONG)
        gate.go.set()
        assert (await asking)[0] == 200


def ends_at_second_key(monkeypatch: pytest.MonkeyPatch, ends: Callable[[], Any]) -> list[Any]:
    """The keys that are made; `ends` is called before the second one is."""
    own, made = Keys.create, list[Any]()

    async def create(this: Any, *args: Any, **rest: Any) -> Any:
        if len(made) == 1:
            await ends()
        made.append(await own(this, *args, **rest))
        return made[-1]

    monkeypatch.setattr(Keys, "create", create)
    return made


async def states(c: Console, made: list[Any]) -> set[str]:
    return {(await c.services.store.keys.show(key.id)).state for key in made}


@pytest.mark.holds("people.md#who-is-who-11", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["disabled", "demoted", "signed out", "stays"])
async def test_import_of_keys_stops_at_the_next_one_and_revokes_those_that_nobody_has_seen(
    console: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with console() as c:
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        await c.user("root@example.com", role="operator")
        browser = await c.signed_in(rob)
        form = {"xsrf": await browser.token(), "current_password": PASSWORD, "kind": "keys", "content": MANY}
        made = ends_at_second_key(monkeypatch, lambda: end(c, how, rob.id))
        shown = await browser.ask("POST", "/site/import/confirm", form)
        if how == "stays":
            assert (shown.status, len(made), await states(c, made)) == (200, 20, {"active"})
            assert all(key.text in shown.html for key in made)
        else:
            assert shown.status in (303, 403) and "sk-" not in shown.html
            assert (len(made), await states(c, made)) == (2, {"revoked"})


@pytest.mark.holds("people.md#who-is-who-11", "security.md#scopes-of-admin-tokens-8")
async def test_keys_of_an_import_are_revoked_if_the_rights_end_at_the_last_one(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        await c.user("root@example.com", role="operator")
        browser = await c.signed_in(rob)
        content = "account,name\nacme,one\nacme,two\n"
        form = {"xsrf": await browser.token(), "current_password": PASSWORD, "kind": "keys", "content": content}
        made = ends_at_second_key(monkeypatch, lambda: end(c, "signed out", rob.id))
        shown = await browser.ask("POST", "/site/import/confirm", form)
        assert shown.status == 303 and (len(made), await states(c, made)) == (2, {"revoked"})


@pytest.mark.holds("people.md#who-is-who-11", "security.md#scopes-of-admin-tokens-8")
async def test_import_of_keys_over_the_api_stops_when_its_token_is_revoked(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        people = await c.services.people()
        tokens = [await people.tokens.create(ROOT, "t", ["keys"]) for _ in range(2)]
        made = ends_at_second_key(monkeypatch, lambda: people.tokens.revoke(ROOT, tokens[0].record.id))
        status, document, _ = await ask(c, tokens[0].text, "POST", "/imports/keys", json={"content": MANY})
        assert (status, list(document)) == (401, ["error"])
        assert (len(made), await states(c, made)) == (2, {"revoked"})
        monkeypatch.undo()
        status, document, _ = await ask(c, tokens[1].text, "POST", "/imports/keys", json={"content": MANY})
        assert status == 400 and "revoked" in document["error"]["message"]  # the repetition says what became of them


@pytest.mark.holds("people.md#who-is-who-11", "security.md#scopes-of-admin-tokens-8")
async def test_import_stops_making_links_and_shows_none_when_the_rights_end(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        people, made, own = await c.services.people(), 0, SignInLinks.create
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        for name in ("root", "one", "two", "three"):
            await c.user(f"{name}@example.com", role="operator" if name == "root" else "none")
        browser = await c.signed_in(rob)
        content = "email\none@example.com\ntwo@example.com\nthree@example.com\n"
        form = {"xsrf": await browser.token(), "current_password": PASSWORD, "kind": "users", "content": content}

        async def create(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            made += 1
            if made == 2:
                await people.sessions.end_all(ROOT, rob.id)
            return await own(*args, **kwargs)

        monkeypatch.setattr(SignInLinks, "create", create)
        shown = await browser.ask("POST", "/site/import/links", form)
        assert (made, shown.status, "token=" in shown.html) == (2, 303, False)

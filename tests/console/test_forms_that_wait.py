"""Forms that wait for the check of the password change nothing when the rights of the person have ended meanwhile."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.console.route import PageRoute
from gateway.console.table import ROUTES
from gateway.database.address import DatabaseAddress
from gateway.database.tables import metadata
from gateway.people.password_hashes import PasswordHashes, Verified
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import PASSWORD, ROOT, Browser, Console
from tests.console.oidc_world import OpenWorld, oidc_world
from tests.console.samples import Samples

__all__ = ["database_address", "database_url", "oidc_world"]

CONFIRMS = "visit.confirm_"
WAYS = ("disabled", "demoted", "signed out")
#: Fields with which a form gets as far as it can, and those of single routes.
FIELDS = {
    "current_password": PASSWORD, "taken": "1", "debit_operation": "op", "model": "fake-chat", "factor": "0.5",
    "in_text": "1", "role": "viewer", "name": "New name", "email": "another@example.com", "action": "acknowledge",
    "all": "1", "note": "a note", "kind": "accounts", "content": "name\nfurther\n", "provider": "corp",
    "issuer": "https://issuer.test", "secret": "A" * 32, "code": "123456",
}  # fmt: skip
#: With a password, another function asks for it: the database reads the rights there. An invitation asks for it only in
#: one of its ways, see `test_late_acceptance`.
ELSEWHERE = {"/profile/password", "/invitation"}
SINGLE = {"/site/import/links": {"kind": "users", "content": "email\nnew1@example.com\n"}}


def confirming() -> list[PageRoute]:
    """The routes whose function asks for the password again."""
    return [route for route in ROUTES if route.writes and CONFIRMS in inspect.getsource(route.function)]


class Ending:
    """Ends the rights of a person while the password is checked; then what the gateway has is remembered."""

    def __init__(self, c: Console, user_id: str, how: str) -> None:
        self._console, self._user_id, self._how = c, user_id, how
        self.had: tuple[Any, ...] = ()

    async def verify(self, *args: Any) -> Verified:
        people = await self._console.services.people()
        if self._how == "disabled":
            await people.users.disable(ROOT, self._user_id)
        elif self._how == "demoted":
            await people.users.edit(ROOT, self._user_id, {"role": "none"})
        else:
            await people.sessions.end_all(ROOT, self._user_id)
        self.had = await state(self._console)
        return Verified(True)


async def state(c: Console) -> tuple[Any, ...]:
    """What the database and the store have, but for counters of attempts and what becomes of old sessions."""
    client = c.services.store.store.client
    names = sorted([name async for name in client.scan_iter("*", count=1000)])
    stored = [(name, await client.dump(name)) for name in names if not name.startswith((b"signin:", b"oidc:"))]
    people = await c.services.people()
    tables = [table for table in metadata.sorted_tables if table.name != "sessions"]

    def rows(connection: Any) -> list[Any]:
        return [sorted(map(repr, connection.execute(sa.select(table)))) for table in tables]

    return stored, await people.transactions.read(rows)


async def form_of(c: Console, route: PageRoute, samples: Samples, user: Any) -> tuple[str, dict[str, str]]:
    sample = await samples.of(route, user)
    form = {**FIELDS, **SINGLE.get(route.path, {}), **sample.form}
    if route.path.startswith("/site/users/{user}/"):
        people = await c.services.people()
        form["erase"] = form["shown_email"] = (await people.users.show(ROOT, sample.path.split("/")[3])).email
    return sample.path, form


async def sent(browser: Browser, path: str, form: dict[str, str]) -> Any:
    return await browser.ask("POST", path, form)


def test_forms_that_ask_for_the_password_are_found() -> None:
    found = {route.path for route in confirming()}
    assert len(found) >= 22
    assert {"/site/accounts/{account}/debit", "/site/users/{user}/erase", "/profile/second-factor"} <= found


@pytest.mark.holds("people.md#who-is-who-9", "people.md#who-is-who-10", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", WAYS)
async def test_form_that_asks_for_the_password_changes_nothing_after_the_rights_have_ended(
    oidc_world: OpenWorld, how: str, database_address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with oidc_world() as (c, _):
        await c.user("root@example.com", role="operator")
        samples, wrong = Samples(c), dict[str, Any]()
        on_postgresql = database_address.file is None
        for number, route in enumerate(confirming()):
            # PostgreSQL is slower, and has each form with one way to end the rights.
            if route.path in ELSEWHERE or (on_postgresql and number % len(WAYS) != WAYS.index(how)):
                continue
            rob = await c.user(f"rob{number}@example.com", role="operator", password=PASSWORD)
            browser = await c.signed_in(rob)
            target, form = await form_of(c, route, samples, rob)
            form["xsrf"] = await browser.token()
            ending = Ending(c, rob.id, how)
            with monkeypatch.context() as patched:
                patched.setattr(PasswordHashes, "verify", ending.verify)
                shown = await sent(browser, target, form)
            assert ending.had, (route.path, "the password is checked", shown.text)
            is_refused = shown.status == 403 or shown.location.startswith("/sign-in")
            if not is_refused or await state(c) != ending.had:
                wrong[route.path] = shown.status
        assert wrong == {}


@pytest.mark.holds("security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", WAYS)
async def test_many_debits_that_wait_for_the_password_stop_with_the_rights(
    console: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console() as c:
        await c.user("root@example.com", role="operator")
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        browser = await c.signed_in(rob)
        form = {"xsrf": await browser.token(), "current_password": PASSWORD, "taken": "1"}
        ending, had = Ending(c, rob.id, how), list[int]()

        async def verify(*args: Any) -> Verified:
            if not had:
                await ending.verify()
                had.append((await c.services.store.accounts.show("acme")).balance)
            return Verified(True)

        monkeypatch.setattr(PasswordHashes, "verify", verify)
        forms = [{**form, "debit_operation": f"op{number}"} for number in range(12)]
        await asyncio.gather(*(sent(browser, "/site/accounts/acme/debit", one) for one in forms))
        assert (await c.services.store.accounts.show("acme")).balance == had[0]


@pytest.mark.holds("people.md#who-is-who-10", "security.md#shares-6")
async def test_person_has_a_number_of_forms_that_wait_for_the_password(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, reached, original = asyncio.Event(), asyncio.Event(), PasswordHashes.verify

    async def slow(this: Any, *args: Any) -> Verified:
        reached.set()
        await may_end.wait()
        return await original(this, *args)

    async with console() as c:
        root = await c.user("root@example.com", role="operator", password=PASSWORD)
        browser = await c.signed_in(root)
        form = {"xsrf": await browser.token(), "current_password": PASSWORD, "taken": "0.1"}
        monkeypatch.setattr(PasswordHashes, "verify", slow)
        forms = [{**form, "debit_operation": f"op{number}"} for number in range(40)]
        tasks = [asyncio.create_task(sent(browser, "/site/accounts/acme/debit", one)) for one in forms]
        await reached.wait()
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=20.0)
        may_end.set()
        statuses = [shown.status for shown in await asyncio.gather(*tasks)]
        assert done and statuses.count(429) >= 20 and statuses.count(303) + statuses.count(429) == 40
        assert statuses.count(303) >= 10

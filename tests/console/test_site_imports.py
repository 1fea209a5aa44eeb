"""Operators import CSV: a dry run that names all faults, then the import; new keys are shown once."""

from __future__ import annotations

import csv
import io
import re
from html import unescape
from typing import Any

import pytest

from gateway.accounts.keys import NewKey
from gateway.admin.keys import KeyAdmin
from gateway.console.handler import MAX_BODY
from gateway.console.pages import site_imports
from gateway.errors import StoreUnavailable
from tests.console.client import PASSWORD, ROOT, Browser, Console, Shown

PAGE = "/site/import"
ACCOUNTS = "name,group,credit,operation\r\nacme,vip,,\r\nnew-one,default,5.5,invoice-1\r\n"
KEYS = 'account,name,budget,every\nacme,"nightly, reports",50,month\nacme,=1+1,,\n'
USERS = "email,name,account,account_role\nnew@example.com,New,acme,owner\n"


async def operator_of(c: Console) -> Browser:
    return await c.as_("root", role="operator", password=PASSWORD)


async def checked(browser: Browser, kind: str, content: str, status: int = 200) -> Shown:
    return await browser.post(PAGE, status, page=PAGE, kind=kind, content=content)


async def confirmed(browser: Browser, kind: str, content: str, status: int = 200, **form: Any) -> Shown:
    fields = {"current_password": PASSWORD, "kind": kind, "content": content, **form}
    return await browser.post(f"{PAGE}/confirm", status, **fields)


def new_keys(page: Shown) -> list[dict[str, str]]:
    found = re.search(r'<pre id="keys"[^>]*>(.*?)</pre>', page.html, re.DOTALL)
    assert found is not None
    return list(csv.DictReader(io.StringIO(unescape(found[1]), newline="")))


async def test_dry_run_shows_the_steps_and_changes_nothing_until_it_is_confirmed(console) -> None:
    async with console() as c:
        operator, accounts = await operator_of(c), c.services.store.accounts
        page = await checked(operator, "accounts", ACCOUNTS)
        assert "To create: 1, to change: 1, credits to book: 1, already so: 0." in page.text
        assert "2 change account:acme group vip" in page.text
        assert "3 credit account:new-one amount 5.5 operation invoice-1" in page.text
        assert {account.name for account in await accounts.list()} == {"acme", "other"}
        content = page.found(r'name="content" value="([^"]*)"')
        done = await confirmed(operator, "accounts", content)
        assert "The import is done" in done.text and "Created: 1, changed: 1, credits booked: 1" in done.text
        assert ((await accounts.show("acme")).group, (await accounts.show("new-one")).balance) == ("vip", 5_500_000_000)
        again = await checked(operator, "accounts", ACCOUNTS)
        assert "nothing to import" in again.text and f'action="{PAGE}/confirm"' not in again.html
        await confirmed(operator, "accounts", ACCOUNTS)  # a page that was sent twice
        assert (await accounts.show("new-one")).balance == 5_500_000_000
        actions = {event.action for _, event in await c.services.store.outbox.read() if event is not None}
        assert actions == {"accounts.create", "accounts.credit", "accounts.move"}


async def test_all_faults_are_named_at_once_and_the_text_comes_back(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        text = "name,group,rpm,credit\nacme,gold,many,\nnew-one,vip,1,5\n</textarea><b>,vip,1,\n"
        for send in (checked, confirmed):
            page = await send(operator, "accounts", text, 400)
            assert "4 faults: nothing was changed" in page.text
            for fault in (
                "accounts.csv, line 2, column group: there is no group 'gold'",
                "accounts.csv, line 2, column rpm: 'many' is no whole number",
                "accounts.csv, line 3, column operation: is empty",
                "accounts.csv, line 4, column name:",
            ):
                assert page.text.count(fault) == 1, fault
            assert page.found(r"<textarea[^>]*>\n([^<]*)</textarea>") == text and "<b>" not in page.html
        assert [account.name for account in await c.services.store.accounts.list()] == ["acme", "other"]


async def test_import_needs_the_password_and_keeps_the_plan_meanwhile(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        page = await confirmed(operator, "accounts", ACCOUNTS, 401, current_password="wrong")
        assert "The password is wrong" in page.text and "To create: 1" in page.text
        assert f'action="{PAGE}/confirm"' in page.html
        assert len(await c.services.store.accounts.list()) == 2


async def test_new_keys_are_shown_once_as_csv(console) -> None:
    async with console() as c:
        operator, keys = await operator_of(c), c.services.store.keys
        page = await checked(operator, "keys", KEYS)
        assert "shown on the next page only" in page.text and "To create: 2" in page.text
        assert not await keys.list("acme")
        page = await confirmed(operator, "keys", KEYS)
        made = new_keys(page)
        assert [(row["account"], row["name"]) for row in made] == [("acme", "nightly, reports"), ("acme", "'=1+1")]
        for row in made:
            assert await keys.owner_of(row["key"]) == ("acme", row["id"])
        assert f'data-address="{PAGE}?kind=keys"' in page.html
        again = await confirmed(operator, "keys", KEYS)
        assert "New keys" not in again.text and len(await keys.list("acme")) == 2


async def test_keys_that_were_made_before_a_fault_are_shown(console, monkeypatch: pytest.MonkeyPatch) -> None:
    create = KeyAdmin.create

    async def second_fails(self: KeyAdmin, *args: Any, **options: Any) -> NewKey:
        if options["name"] == "=1+1":
            raise StoreUnavailable
        return await create(self, *args, **options)

    monkeypatch.setattr(KeyAdmin, "create", second_fails)
    async with console() as c:
        page = await confirmed(await operator_of(c), "keys", KEYS, StoreUnavailable.status)
        assert "stopped after 1 new key" in page.text
        [row] = new_keys(page)
        assert await c.services.store.keys.owner_of(row["key"]) == ("acme", row["id"])


async def test_users_are_imported_and_get_a_link_later(console) -> None:
    async with console() as c:
        page = await confirmed(await operator_of(c), "users", USERS)
        assert "Created: 1" in page.text and "New users cannot sign in yet" in page.text
        people = await c.services.people()
        assert (await people.users.find(ROOT, "new@example.com")).accounts == {"acme": "owner"}


async def test_text_that_a_form_cannot_carry_is_refused_with_the_command_that_can(console) -> None:
    assert site_imports.LARGEST + 4096 < MAX_BODY  # the password and the token have room
    async with console() as c:
        operator = await operator_of(c)
        line = "new-one,,\r\n"
        page = await checked(operator, "accounts", line * (site_imports.LARGEST // 19 + 1), 400)
        assert "gateway import accounts" in page.text and "too long for a form" in page.text
        for content, kind, problem in (
            (" \n", "accounts", "Paste the text"),
            ("name", "prices", "Choose what to import"),
        ):
            assert problem in (await checked(operator, kind, content, 400)).text


async def test_each_kind_names_its_columns(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        for kind, names in (
            ("accounts", ("name (required)", "monthly", "operation")),
            ("keys", ("account (required)", "max_cost")),
            ("users", ("email (required)", "account_role")),
        ):
            page = await operator.get(f"{PAGE}?kind={kind}")
            assert all(name in page.text for name in names)
        assert f'href="{PAGE}?kind=accounts"' in (await operator.get("/site/accounts")).html
        assert f'href="{PAGE}?kind=users"' in (await operator.get("/site/users")).html

"""Operators import CSV: a dry run that names all faults, then the import; new keys are shown once."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from functools import partial
from html import unescape
from typing import Any

import pytest

from gateway.accounts.key_record import CreatedKey
from gateway.admin.accounts import AccountAdmin
from gateway.admin.keys import KeyService
from gateway.amounts import NANO
from gateway.console.form_body import MAX_FORM
from gateway.console.pages import site_imports
from gateway.console.running_imports import RunningImports
from gateway.errors import InvalidValue, NotSignedIn, StoreUnavailable
from gateway.imports.accounts import AccountImport
from gateway.imports.keys import KeyImport
from gateway.people.member_budgets import MemberBudgets
from tests.console.client import PASSWORD, ROOT, Browser, Console, Shown
from tests.polling import until

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


@pytest.mark.holds("console.md#what-operators-do-2")
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


@pytest.mark.holds("console.md#what-operators-do-2")
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


@pytest.mark.holds("console.md#what-operators-do-2")
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


@pytest.mark.holds("console.md#what-operators-do-2")
@pytest.mark.parametrize("fault", [StoreUnavailable(), InvalidValue("not now"), RuntimeError("a bug")])
async def test_keys_that_were_made_before_a_fault_are_shown(
    console, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    create = KeyService.create

    async def second_fails(self: KeyService, *args: Any, **options: Any) -> CreatedKey:
        if options["name"] == "=1+1":
            raise fault
        return await create(self, *args, **options)

    monkeypatch.setattr(KeyService, "create", second_fails)
    status = {StoreUnavailable: 503, InvalidValue: 400, RuntimeError: 500}[type(fault)]
    async with console() as c:
        page = await confirmed(await operator_of(c), "keys", KEYS, status)
        assert "stopped after 1 new key" in page.text and "a bug" not in page.text
        assert ("an import of keys failed in the console" in caplog.messages) == (status == 500)
        [row] = new_keys(page)
        assert await c.services.store.keys.owner_of(row["key"]) == ("acme", row["id"])


@pytest.mark.holds("console.md#what-operators-do-2")
async def test_form_makes_at_most_so_many_keys_as_fit_on_its_page(console, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as c:
        operator, keys = await operator_of(c), c.services.store.keys
        lines = "".join(f"acme,k{number}\n" for number in range(site_imports.MOST_NEW_KEYS + 1))
        page = await checked(operator, "keys", f"account,name\n{lines}", 400)
        assert "keys.csv, line 502: from here on more than 500 keys" in page.text and "gateway import keys" in page.text
        assert "at most 500 new keys" in page.text
        monkeypatch.setattr(site_imports, "MOST_NEW_KEYS", 2)
        brought = "acme,old,sk-brought-along-from-elsewhere\n"  # its owner has the text
        text = f"account,name,key\nacme,a,\nacme,b,\n{brought}"
        page = await confirmed(operator, "keys", f"{text}acme,c,\n", 400)
        assert "1 fault: nothing was changed" in page.text and not await keys.list("acme")
        assert len(new_keys(await confirmed(operator, "keys", text))) == 2
        assert len(new_keys(await confirmed(operator, "keys", f"{text}acme,c,\n"))) == 1


class Held:
    """Keeps the making of keys from going on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        create = KeyService.create

        async def held(admin: KeyService, *args: Any, **options: Any) -> CreatedKey:
            self.begun += 1
            await self.go_on.wait()
            return await create(admin, *args, **options)

        monkeypatch.setattr(KeyService, "create", held)


@pytest.mark.holds("console.md#what-operators-do-2")
async def test_form_that_is_sent_twice_at_once_imports_once_and_both_pages_have_the_keys(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, joined = Held(monkeypatch), 0
    run = RunningImports.run

    async def counted(self: RunningImports, *args: Any) -> Any:
        nonlocal joined
        joined += 1
        return await run(self, *args)

    monkeypatch.setattr(RunningImports, "run", counted)
    async with console() as c:
        operator = await operator_of(c)
        twice = [asyncio.create_task(confirmed(operator, "keys", KEYS)) for _ in range(2)]
        await until(lambda: joined == 2 and held.begun > 0)
        held.go_on.set()
        first, second = [new_keys(page) for page in await asyncio.gather(*twice)]
        assert first == second and len(first) == 2
        assert len(await c.services.store.keys.list("acme")) == 2


@pytest.mark.holds("console.md#what-operators-do-2")
async def test_another_import_is_refused_while_one_runs(console, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    async with console() as c:
        operator = await operator_of(c)
        running = asyncio.create_task(confirmed(operator, "keys", KEYS))
        await until(lambda: held.begun == 1)
        async with asyncio.timeout(30):  # it does not wait
            page = await confirmed(operator, "keys", f"{KEYS}acme,third,,\n", 409)
        assert "Another import is running" in page.text and "To create: 3" in page.text
        held.go_on.set()
        assert len(new_keys(await running)) == 2
        assert len(new_keys(await confirmed(operator, "keys", f"{KEYS}acme,third,,\n"))) == 1


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-5")
async def test_imports_of_keys_outside_the_console_take_turns_as_well(console) -> None:
    async with console() as c:
        store, made = c.services.store, list[CreatedKey]()
        runs = (
            KeyImport.of(store).run(ROOT, "keys.csv", KEYS.encode(), dry_run=False, on_new=made.append)
            for _ in range(2)
        )
        done = await asyncio.gather(*runs)
        assert sorted(imported.create for imported in done) == [0, 2]
        assert len(made) == len(await store.keys.list("acme")) == 2


async def test_imports_take_turns_also_when_the_configuration_is_reloaded_between_them(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    async with console() as c:
        made = list[CreatedKey]()

        def importing() -> asyncio.Task[Any]:
            run = KeyImport.of(c.services.store).run(ROOT, "keys.csv", KEYS.encode(), dry_run=False, on_new=made.append)
            return asyncio.create_task(run)

        first = importing()
        await until(lambda: held.begun == 1)
        c.services.use(c.services.settings)
        second = importing()
        await c.services.store.keys.list("acme")  # as long as a plan takes, if it does not wait
        await c.services.store.keys.list("acme")
        held.go_on.set()
        done = await asyncio.gather(first, second)
        assert sorted(imported.create for imported in done) == [0, 2]
        assert len(made) == len(await c.services.store.keys.list("acme")) == 2


async def test_accounts_of_an_import_that_stops_are_remembered_for_the_audit(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*args: Any, **options: Any) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(AccountAdmin, "credit", fails)
    async with console() as c:
        await confirmed(await operator_of(c), "accounts", ACCOUNTS, StoreUnavailable.status)
        assert c.services.store.known_accounts.read() == len(await c.services.store.accounts.list()) == 3


async def test_credit_that_was_booked_before_an_import_stopped_is_not_called_unchanged(console) -> None:
    async with console() as c:
        operator, accounts = await operator_of(c), c.services.store.accounts
        half = "5000000"  # two of them are more than an account can have
        text = f"name,credit,operation\nacme,{half},first\nacme,{half},second\nother,7,third\n"
        assert "The text has no fault. Nothing was changed yet" in (await checked(operator, "accounts", text)).text
        page = await confirmed(operator, "accounts", text, 400)
        assert (await accounts.show("acme")).balance == 5_000_025 * NANO
        assert "nothing was changed" not in page.text.lower()
        assert "more than 9000000" in page.text or "cannot pass 9000000" in page.text  # why it stopped
        assert "What is done already is not done twice" in page.text
        done = await confirmed(operator, "accounts", text.replace(f"acme,{half},second\n", ""))
        assert "credits booked: 1" in done.text
        assert (await accounts.show("acme")).balance == 5_000_025 * NANO


async def test_plan_of_an_import_that_stopped_has_the_steps_that_are_left(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    credit = AccountAdmin.credit

    async def other_refuses(self: AccountAdmin, actor: Any, name: str, *args: Any, **options: Any) -> Any:
        if name == "other":
            raise InvalidValue("not now")
        return await credit(self, actor, name, *args, **options)

    monkeypatch.setattr(AccountAdmin, "credit", other_refuses)
    async with console() as c:
        text = "name,credit,operation\nacme,1,a\nother,2,b\n"
        page = await confirmed(await operator_of(c), "accounts", text, 400)
        assert "not now" in page.text and "Nothing was changed yet" not in page.text
        assert "What is done already is not done twice" in page.text and "credits to book: 1" in page.text


async def test_users_are_imported_and_get_a_link_later(console) -> None:
    async with console() as c:
        page = await confirmed(await operator_of(c), "users", USERS)
        assert "Created: 1" in page.text and "New users cannot sign in yet" in page.text
        people = await c.services.people()
        assert (await people.users.find(ROOT, "new@example.com")).accounts == {"acme": "owner"}


@pytest.mark.holds("console.md#what-operators-do-2")
async def test_text_that_a_form_cannot_carry_is_refused_with_the_command_that_can(console) -> None:
    assert site_imports.LARGEST + 4096 < MAX_FORM  # the password and the token have room
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


async def test_pages_that_make_one_thing_lead_operators_to_the_import_of_many(console) -> None:
    makes = {"accounts": "/site/new-account", "keys": "/accounts/acme/keys/new", "users": "/site/new-user"}
    async with console() as c:
        operator, owner = await operator_of(c), await c.as_("ann", acme="owner")
        for kind, path in makes.items():
            assert f'href="{PAGE}?kind={kind}"' in (await operator.get(path)).html
        assert PAGE not in (await owner.get(makes["keys"])).html


@pytest.mark.holds("people.md#who-is-who-9")
@pytest.mark.parametrize("kind", ["accounts", "keys"])
async def test_import_of_an_operator_who_is_demoted_meanwhile_stops(
    console, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It waits for other imports, and takes long: rights end while it does. Keys that were made before are revoked."""
    async with console() as c:
        people, store = await c.services.people(), c.services.store
        await c.user("op@example.com", role="operator")
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        browser, made = await c.signed_in(rob), 0
        monkeypatch.setattr("gateway.imports.plan.CHECKED_EVERY", 2)
        service, name = (AccountAdmin, "create") if kind == "accounts" else (KeyService, "create")
        create = getattr(service, name)

        async def create_and_demote(*args: Any, **rest: Any) -> Any:
            nonlocal made
            made += 1
            if made == 3:
                await people.users.edit(ROOT, rob.id, {"role": "none"})
            return await create(*args, **rest)

        monkeypatch.setattr(service, name, create_and_demote)
        lines = [f"new-{number}" if kind == "accounts" else f"acme,new-{number}" for number in range(9)]
        head = "name" if kind == "accounts" else "account,name"
        page = await confirmed(browser, kind, "\n".join([head, *lines]), 403)
        if kind == "accounts":
            assert made == 4  # up to the next check
            assert len(await store.accounts.list()) == 2 + 4
        else:
            assert made == 3 and "sk-" not in page.html
            assert {key.state for key in await store.keys.list("acme")} == {"revoked"}


@pytest.mark.holds("people.md#who-is-who-9")
async def test_import_that_waits_for_another_one_does_nothing_for_a_token_that_is_revoked_meanwhile(console) -> None:
    async with console() as c:
        tokens = (await c.services.people()).tokens
        made = await tokens.create(ROOT, "t", ["accounts", "credits"])
        actor = await tokens.authenticate(made.text)
        check = partial(tokens._transactions.require_current, actor)
        async with c.services.store.turn_to_import:
            importing = AccountImport.of(c.services.store, check=check)
            run = asyncio.create_task(importing.run(actor, "x.csv", b"name\nlate\n", dry_run=False))
            await asyncio.sleep(0)
            await tokens.revoke(ROOT, made.record.id)
        with pytest.raises(NotSignedIn):
            await run
        assert {account.name for account in await c.services.store.accounts.list()} == {"acme", "other"}


async def test_import_of_budgets_stops_when_the_rights_of_its_operator_end(console, monkeypatch) -> None:
    async with console() as c:
        people = await c.services.people()
        await c.user("op@example.com", role="operator")
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        members = [await c.user(f"m{number}@example.com", acme="member") for number in range(6)]
        browser, changed = await c.signed_in(rob), 0
        monkeypatch.setattr("gateway.imports.plan.CHECKED_EVERY", 2)
        change = MemberBudgets.change

        async def change_and_demote(*args: Any, **rest: Any) -> Any:
            nonlocal changed
            changed += 1
            if changed == 2:
                await people.users.edit(ROOT, rob.id, {"role": "none"})
            return await change(*args, **rest)

        monkeypatch.setattr(MemberBudgets, "change", change_and_demote)
        lines = [f"{member.email},acme,5" for member in members]
        await confirmed(browser, "users", "\n".join(["email,account,budget", *lines]), 403)
        assert changed == 2  # up to the next check

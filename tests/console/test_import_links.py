"""After an import of users, an operator makes links to sign in for them; the links are shown once."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from html import unescape
from typing import Any

import pytest

from gateway.admin.audit_trail import AuditFilter
from gateway.console.pages import import_links
from gateway.people.sign_in_links import SignInLinks
from tests.console.client import PASSWORD, ROOT, Browser, Shown
from tests.console.test_site_imports import confirmed, operator_of
from tests.polling import until

LINKS = "/site/import/links"
USERS = "email,name,account\nnew@example.com,Neva,acme\nann@example.com,,acme\nnew@example.com,,other\n"


async def asked(browser: Browser, content: str = USERS, status: int = 200, **form: Any) -> Shown:
    fields = {"current_password": PASSWORD, "kind": "users", "content": content, **form}
    return await browser.post(LINKS, status, **fields)


def new_links(page: Shown) -> list[dict[str, str]]:
    found = re.search(r'<pre id="links"[^>]*>(.*?)</pre>', page.html, re.DOTALL)
    return [] if found is None else list(csv.DictReader(io.StringIO(unescape(found[1]), newline="")))


@pytest.mark.holds("console.md#what-operators-do-3")
async def test_page_of_an_import_leads_to_links_for_its_users_which_are_shown_once(console) -> None:
    async with console() as c:
        operator = await operator_of(c)
        done = await confirmed(operator, "users", USERS)
        assert f'action="{LINKS}"' in done.html and done.found(r'name="content" value="([^"]*)"') == USERS
        page = await asked(operator, done.found(r'name="content" value="([^"]*)"'))
        made = new_links(page)
        assert [(row["email"], row["name"]) for row in made] == [("new@example.com", "Neva"), ("ann@example.com", "")]
        assert 'data-address="/site/import?kind=users"' in page.html and page.headers["Cache-Control"] == "no-store"
        people, browser = await c.services.people(), await c.browser()
        path = made[0]["link"].partition("//")[2].partition("/")[2]
        form = {"token": path.partition("token=")[2], "password": PASSWORD, "repeated": PASSWORD, "action": "password"}
        await browser.post("/sign-in/link", page=f"/{path}", **form)
        assert "Neva" in (await browser.get("/profile")).text
        events = await people.audit_trail.list(ROOT, AuditFilter())
        linked = [event.object for event in events if event.action == "users.link" and event.actor_kind == "user"]
        assert len(set(linked)) == 2
        await asked(operator)
        path = made[1]["link"].partition("//")[2].partition("/")[2]
        assert "Neva" not in (await (await c.browser()).ask("GET", f"/{path}")).text, "the links of before have ended"


@pytest.mark.holds("console.md#what-operators-do-3")
async def test_nothing_is_made_without_the_password_or_for_a_user_who_cannot_sign_in(console) -> None:
    async with console() as c:
        operator, people = await operator_of(c), await c.services.people()
        await confirmed(operator, "users", USERS)
        page = await asked(operator, status=401, current_password="wrong")
        assert "The password is wrong" in page.text and page.found(r'name="content" value="([^"]*)"') == USERS
        ann = await people.users.find(ROOT, "ann@example.com")
        await people.users.disable(ROOT, ann.id)
        page = await asked(operator, f"{USERS}eve@example.com,,\n", 400)
        assert "There is no user eve@example.com" in page.text and "ann@example.com is disabled" in page.text
        for content, problem in (("name\nx\n", "no column `email`"), ('email\n"x', "no CSV")):
            assert problem in (await asked(operator, content, 400)).text
        assert "are for users" in (await asked(operator, "name\nacme\n", 400, kind="accounts")).text
        events = await people.audit_trail.list(ROOT, AuditFilter())
        assert not [event for event in events if event.action == "users.link" and event.actor_kind == "user"]


@pytest.mark.holds("console.md#what-operators-do-3")
async def test_form_makes_at_most_so_many_links_as_fit_on_its_page(console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_links, "MOST_LINKS", 1)
    async with console() as c:
        operator = await operator_of(c)
        await confirmed(operator, "users", USERS)
        assert "at most 1 links. Make more with `gateway users links" in (await asked(operator, status=400)).text
        assert len(new_links(await asked(operator, "email\nnew@example.com\nnew@example.com\n"))) == 1


@pytest.mark.holds("console.md#what-operators-do-3")
async def test_links_that_were_made_before_the_rights_of_the_operator_end_are_not_shown(
    console, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = SignInLinks.create
    async with console() as c:
        people = await c.services.people()
        await c.user("op@example.com", role="operator")
        rob = await c.user("rob@example.com", role="operator", password=PASSWORD)
        browser = await c.signed_in(rob)
        await confirmed(browser, "users", USERS)

        async def create_and_demote(self: SignInLinks, actor: Any, user_id: str, **rest: Any) -> Any:
            new = await create(self, actor, user_id, **rest)
            if actor.kind == "user":
                await people.users.edit(ROOT, rob.id, {"role": "none"})
            return new

        monkeypatch.setattr(SignInLinks, "create", create_and_demote)
        page = await asked(browser, status=403)
        assert "token=" not in page.html


@pytest.mark.holds("console.md#what-operators-do-3")
async def test_form_that_is_sent_twice_at_once_makes_the_links_once(console, monkeypatch: pytest.MonkeyPatch) -> None:
    create, begun, go_on = SignInLinks.create, 0, asyncio.Event()

    async def held(self: SignInLinks, actor: Any, user_id: str, **rest: Any) -> Any:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return await create(self, actor, user_id, **rest)

    async with console() as c:
        operator = await operator_of(c)
        await confirmed(operator, "users", USERS)
        joined, run = 0, c.site.imports.run
        monkeypatch.setattr(SignInLinks, "create", held)

        async def counted(*args: Any) -> Any:
            nonlocal joined
            joined += 1
            return await run(*args)

        monkeypatch.setattr(c.site.imports, "run", counted)
        twice = [asyncio.create_task(asked(operator)) for _ in range(2)]
        await until(lambda: joined == 2 and begun == 1)
        go_on.set()
        first, second = [new_links(page) for page in await asyncio.gather(*twice)]
        assert first == second and len(first) == 2

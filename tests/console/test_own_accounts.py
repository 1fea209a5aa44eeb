"""A person in many accounts: the menu names the first ones, a page all of them."""

from __future__ import annotations

import re

from gateway.admin.user_rows import User
from gateway.console.visit import MOST_IN_MENU
from gateway.database.people_tables import memberships
from tests.console.client import Console, Shown
from tests.console.conftest import OpenConsole

MANY = MOST_IN_MENU + 60
MENU = r'aria-label="Account [^"]*: switch"(.*?)</details>'
NEXT = r'href="([^"]*after=[^"]*)"'


def name(number: int) -> str:
    return f"team-{number:03}"


async def wide(c: Console) -> User:
    """A member of many accounts, and the owner of the last one."""
    user, directory = await c.user("wide@example.com"), c.services.store.accounts
    row = {"user_id": user.id, "email": user.email, "role": "member", "created_at": 0}
    for number in range(MANY):
        await directory.create(name(number))
    with (await c.services.database()).writing() as connection:
        rows = [{**row, "account": name(number)} for number in range(MANY - 1)]
        connection.execute(memberships.insert(), [*rows, {**row, "account": name(MANY - 1), "role": "owner"}])
    return user


def accounts_in(html: str) -> list[str]:
    return re.findall(r'href="/accounts/(team-\d+)', html)


def table(page: Shown) -> list[str]:
    return accounts_in(page.found(r"<tbody>(.*)</tbody>"))


async def test_menu_has_the_first_accounts_and_a_page_all(console: OpenConsole) -> None:
    async with console() as c:
        browser = await c.signed_in(await wide(c))
        menu = (await browser.get("/profile")).found(MENU)
        assert accounts_in(menu) == [name(number) for number in range(MOST_IN_MENU)]
        assert 'href="/accounts"' in menu
        first = await browser.get("/accounts")
        rest = await browser.get(first.found(NEXT))
        last = await browser.get(rest.found(NEXT))
        assert [*table(first), *table(rest), *table(last)] == [name(number) for number in range(MANY)]
        assert f"{name(MANY - 1)} owner" in last.text
        assert "after=" not in last.html


async def test_accounts_are_searched_by_the_beginning_of_their_names(console: OpenConsole) -> None:
    async with console() as c:
        browser = await c.signed_in(await wide(c))
        assert table(await browser.get("/accounts?q=Team-09")) == [name(number) for number in range(90, 100)]
        assert "No account of yours fits" in (await browser.get("/accounts?q=%25")).text
        await c.services.store.accounts.create("team-of-others")
        assert "No account of yours fits" in (await browser.get("/accounts?q=team-o")).text


async def test_account_that_is_not_in_the_menu_opens_with_its_role_and_stays_the_current_one(
    console: OpenConsole,
) -> None:
    async with console() as c:
        browser, last = await c.signed_in(await wide(c)), name(MANY - 1)
        await browser.get(f"/accounts/{last}/members")  # for owners
        assert f"Account {last}" in (await browser.get("/profile")).text
        assert (await browser.ask("GET", "/")).location == f"/accounts/{last}"
        await browser.get(f"/accounts/{name(MANY - 2)}/members", 403)  # of which they are no owner
        await browser.get("/accounts/other", 404)


async def test_person_in_few_accounts_has_all_of_them_in_the_menu(console: OpenConsole) -> None:
    async with console() as c:
        browser = await c.as_("few", acme="member", other="owner")
        menu = (await browser.get("/profile")).found(MENU)
        assert 'href="/accounts/acme"' in menu and 'href="/accounts/other"' in menu and "All accounts" not in menu
        assert "acme member" in (await browser.get("/accounts")).text
        nobody = await c.as_("nobody")
        assert "You have no account yet" in (await nobody.get("/accounts")).text

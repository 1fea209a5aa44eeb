"""The navigation: groups of pages, the current one marked, and none without a page for the reader."""

from __future__ import annotations

import re

from gateway.console.audience import OF_ACCOUNTS
from gateway.console.route import GROUPS
from gateway.console.table import ROUTES
from tests.console.client import Shown
from tests.console.conftest import OpenConsole
from tests.console.samples import Samples

GROUP = re.compile(r'<details( class="here")?( open)?><summary>([^<]*)</summary>(.*?)</details>')


def parts(page: Shown) -> list[tuple[str, str, str, str]]:
    """Each group: whether it is marked, whether it is open, its name, and its links."""
    return GROUP.findall(page.html.partition('<nav class="side"')[2].partition("</nav>")[0])


def groups(page: Shown) -> dict[str, list[str]]:
    """The links of each group."""
    return {label: re.findall(r">([^<>]+)</a>", links) for _, _, label, links in parts(page)}


def here(page: Shown) -> list[tuple[str, str]]:
    """The marked groups, with their marked links."""
    marked = r'aria-current="page">([^<]+)</a>'
    return [(label, re.findall(marked, links)[0]) for mark, _, label, links in parts(page) if mark]


def opened(page: Shown) -> list[str]:
    """The groups that are open without a script."""
    return [label for _, is_open, label, _ in parts(page) if is_open]


async def test_operator_has_the_pages_of_the_site_in_groups_and_those_of_the_account_in_one(
    console: OpenConsole,
) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", acme="owner")
        shown = groups(await operator.get("/site"))
        assert list(shown) == [
            "Overview",
            "Traffic",
            "Money",
            "People",
            "Models",
            "System",
            "Help",
            "You",
            "Account acme",
        ]
        assert shown["Overview"] == ["Home", "Alerts"]
        assert shown["People"] == ["Accounts", "Users"]
        assert shown["Models"] == ["Providers", "Models", "Price list"] and shown["Money"] == ["Audit", "All reports"]
        assert shown["Account acme"][:2] == ["Overview", "API keys"]
        assert all(links for links in shown.values())


async def test_groups_without_a_page_for_the_reader_are_hidden(console: OpenConsole) -> None:
    async with console(public_prices=True) as c:
        member, nobody = await c.as_("ann", acme="member"), await c.as_("bob")
        shown = groups(await member.get("/accounts/acme"))
        assert list(shown) == ["Account acme", "Models", "Help", "You"]
        assert shown["Models"] == ["Price list"] and "Account" not in shown["Account acme"]
        assert groups(await nobody.get("/profile")) == {
            "Models": ["Price list"],
            "Help": ["Documentation"],
            "You": ["Profile"],
        }
        assert opened(await nobody.get("/profile")) == ["Models", "Help", "You"]


async def test_current_page_and_its_group_are_marked_on_each_page_of_the_site(console: OpenConsole) -> None:
    async with console() as c:
        user = await c.user("root@example.com", role="operator", acme="owner")
        operator, samples = await c.signed_in(user), Samples(c)
        for route in ROUTES:
            if route.method != "GET" or not route.path.startswith("/site") or route.path.endswith((".csv", ".json")):
                continue
            [(group, entry)] = here(await operator.get((await samples.of(route, user)).path))
            assert group in GROUPS and (not route.menu or (group, entry) == (route.group, route.menu)), route.path


async def test_groups_on_the_side_of_the_page_are_open(console: OpenConsole) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", acme="owner")
        assert "Account acme" not in opened(await operator.get("/site")) and "People" in opened(
            await operator.get("/site")
        )
        assert opened(await operator.get("/accounts/acme/keys")) == ["Account acme"]
        assert here(await operator.get("/accounts/acme/keys")) == [("Account acme", "API keys")]
        narrow = (await operator.get("/accounts/acme/keys")).html
        assert 'popovertarget="pages" aria-label="Pages, here Account acme: API keys"' in narrow


def test_each_entry_of_the_site_has_a_group_and_those_of_accounts_have_none() -> None:
    entries = [route for route in ROUTES if route.menu]
    assert all((route.audience in OF_ACCOUNTS) != bool(route.group) for route in entries)
    assert {route.group for route in entries} - {""} == set(GROUPS)

"""Strange characters in paths, queries and forms get an answer of their own, on SQLite and on PostgreSQL."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from gateway.console import cookies as names
from gateway.console.table import ROUTES
from tests.admin_api.both_databases import database_address, database_url
from tests.console.history import ago, calls

__all__ = ["database_address", "database_url"]


ZERO = "a%00b"
QUERY = "?" + "&".join(
    f"{name}={ZERO}" for name in ("q", "model", "key", "account", "user", "actor", "object", "after")
)
#: What is no number in an address: other digits, and one that is too long for the database.
NO_NUMBERS = ("\u00b2", "1.\u00b2.acme", "\u0661", "9" * 18)


async def test_number_in_an_address_that_is_none_is_taken_for_no_number(console) -> None:
    async with console() as c:
        await calls(c, ago(minutes=3))
        operator = await c.as_("root", role="operator", acme="owner")
        token = await operator.token()
        for number in NO_NUMBERS:
            for path in ("/site/calls", "/accounts/acme/usage"):
                assert "300 ms" in (await operator.get(f"{path}?before={quote(number)}")).text, (path, number)
            probed = {"provider": "fake", "credential": number, "model": "fake-chat", "xsrf": token}
            answer = await operator.ask("POST", "/site/models/probe", probed)
            assert (answer.status, "no such target" in answer.text) == (404, True), number


@pytest.mark.holds("console.md#security-2")
@pytest.mark.slow
async def test_zero_character_in_a_path_is_not_found_and_in_a_query_or_a_form_refused_on_every_route(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", acme="owner")
        form = {"xsrf": await operator.token(), "name": "new", "user": "a\0b"}
        for route in ROUTES:
            values = dict.fromkeys(route.parameters, "acme")
            for name in values:
                path = route.path.format(**{**values, name: ZERO})
                answer = await operator.ask(route.method, path, {} if route.writes else None)
                assert (answer.status, "no such page" in answer.text) == (404, True), (route.method, path)
            path = route.path.format(**values)
            answer = await operator.ask(route.method, path + QUERY, {} if route.writes else None)
            assert (answer.status, "U+0000" in answer.text) == (400, True), (route.method, path)
            if route.writes:
                answer = await operator.ask("POST", path, form)
                assert (answer.status, "U+0000" in answer.text) == (400, True), path


async def test_zero_character_in_a_cookie_is_no_failure(console) -> None:
    async with console() as c:
        browser = await c.browser()
        for name in (names.SESSION, names.VISITOR, names.ACCOUNT, names.FLASH):
            answer = await browser.ask("GET", "/sign-in", headers={"Cookie": f'{name}="a\\000b"'})
            assert answer.status == 200, name

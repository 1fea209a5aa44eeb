"""Strange characters in paths, queries and forms get an answer of their own, on SQLite and on PostgreSQL."""

from __future__ import annotations

from urllib.parse import quote

from tests.admin_api.both_databases import database_address, database_url, postgres
from tests.console.history import ago, calls

__all__ = ["database_address", "database_url", "postgres"]


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

"""The page of the members of an account."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.database.people_tables import memberships, users
from gateway.store.connection import RedisConnection
from gateway.store.links import slot
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT

__all__ = ["database_address", "database_url"]
MEMBERS = "/accounts/acme/members"


class Questions:
    """Counts the statements of the database and the writes to the store."""

    def __init__(self, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = [0, 0]
        sa.event.listen(engine, "before_cursor_execute", self._statement)
        flush = RedisConnection.flush

        def counted(connection: RedisConnection) -> None:
            self.asked[1] += bool(connection._outgoing)
            flush(connection)

        monkeypatch.setattr(RedisConnection, "flush", counted)

    def _statement(self, *args: Any) -> None:
        self.asked[0] += 1


async def test_members_are_asked_for_together(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        budgets = (await c.services.people()).member_budgets
        await owner.get(MEMBERS)
        questions = Questions((await c.services.database()).engine, monkeypatch)
        asked = []
        for first in (0, 3):
            for number in range(first, 10 * first + 3):
                user = await c.user(f"m{number}@example.com", acme="member")
                await budgets.change(ROOT, user.id, "acme", budget=(number + 1) * 10**9, every="month")
            counts = []
            for _ in range(3):  # what runs beside a page may ask, too
                questions.asked = [0, 0]
                page = await owner.get(MEMBERS)
                counts.append(questions.asked)
            asked.append(min(counts))
        assert "0.00 of 1.00 per month" in page.text and "0.00 of 33.00 per month" in page.text
        assert asked[0] == asked[1]


@pytest.mark.parametrize("field", ["cap", "spent", "held", "every", "base"])
async def test_member_whose_budget_cannot_be_read_is_shown_as_such_beside_the_others(console: Any, field: str) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        budgets = (await c.services.people()).member_budgets
        for number in range(2):
            user = await c.user(f"m{number}@example.com", acme="member")
            await budgets.change(ROOT, user.id, "acme", budget=5 * 10**9, every="month")
        name = slot("acme")
        await c.services.store.store.link(name).call("HSET", f"{name}:u:{user.id}", field, "abc")
        page = await owner.get(MEMBERS)
        assert (page.html.count("unreadable"), "0.00 of 5.00 per month" in page.text) == (1, True)
        if field in ("cap", "every", "base"):  # the others are sums of the ledger, which no setting replaces
            found = await budgets.change(ROOT, user.id, "acme", budget=7 * 10**9, every="day")
            assert (found.budget, found.unreadable) == (7 * 10**9, False)


async def test_all_members_are_on_pages_and_found_by_a_search(console: Any) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        await c.user("stranger@example.com", other="member")
        page = await owner.get(MEMBERS)
        assert "Search" not in page.text
        emails = [f"m{number:03}@example.com" for number in range(120)]
        for email in emails:
            await c.user(email, acme="member")
        found, path = list[str](), MEMBERS
        while path:
            page = await owner.get(path)
            found += re.findall(r'<td class="wrap">([\w.]+@example\.com)', page.html)
            path = unescape("".join(re.findall(r'<a class="button" href="([^"]+)">Next</a>', page.html)))
        assert found == [*emails, "owner@example.com"]
        page = await owner.get(f"{MEMBERS}?q=M119")
        assert "m119@example.com" in page.text and "m118@example.com" not in page.text
        assert f"/accounts/acme/usage?user={page.found(r'members/(usr_[a-z0-9]+)/role')}" in page.html
        assert "No member fits" in (await owner.get(f"{MEMBERS}?q=stranger")).text


async def test_names_beside_keys_are_those_of_members_behind_the_first_thousand(console: Any) -> None:
    async with console() as c:
        owner, zoe = await c.as_("owner", acme="owner"), await c.user("zoe@example.com", acme="member")
        await c.services.store.keys.create("acme", name="hers", user=zoe.id)
        numbers = range(1100)
        people = [
            {"id": f"usr_{n}", "email": f"m{n}@x.com", "name": "", "role": "none", "created_at": 0} for n in numbers
        ]
        roles = [
            {"user_id": f"usr_{n}", "email": f"m{n}@x.com", "account": "acme", "role": "member", "created_at": 0}
            for n in numbers
        ]
        with (await c.services.database()).writing() as connection:
            connection.execute(users.insert(), people)
            connection.execute(memberships.insert(), roles)
        assert "zoe@example.com" in (await owner.get("/accounts/acme/keys")).text

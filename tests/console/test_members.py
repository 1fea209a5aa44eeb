"""The page of the members of an account."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from gateway.store.connection import RedisConnection
from tests.admin_api.both_databases import database_address, database_url, postgres
from tests.console.client import ROOT

__all__ = ["database_address", "database_url", "postgres"]
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
            questions.asked = [0, 0]
            page = await owner.get(MEMBERS)
            asked.append(list(questions.asked))
        assert "0.00 of 1.00 per month" in page.text and "0.00 of 33.00 per month" in page.text
        assert asked[0] == asked[1]

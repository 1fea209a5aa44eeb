"""A program that is running changes nothing in a database whose tables a newer program has upgraded."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from gateway.errors import DatabaseRefused
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT

__all__ = ["database_address", "database_url"]


@pytest.mark.gen_test
async def test_running_console_changes_nothing_after_a_newer_program_has_upgraded_the_tables(console: Any) -> None:
    async with console() as c:
        people = await c.services.people()
        user = await people.users.create(ROOT, "ann@example.com")

        def upgraded(connection: Any) -> None:
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

        await people.transactions.write(upgraded)
        with pytest.raises(DatabaseRefused):
            await people.users.edit(ROOT, user.id, {"name": "Ann"})
        assert (await people.users.show(ROOT, user.id)).name == ""

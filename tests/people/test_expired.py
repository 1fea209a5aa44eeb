"""What has expired of people is removed by the importer."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from gateway.admin.times import MICROSECOND
from gateway.database.people_tables import invitations, sessions, sign_in_links, sign_ups
from gateway.metrics import Metrics
from gateway.people.expired import remove_expired
from gateway.people.sign_ups import insert_sign_up
from tests.admin.services import PASSWORD, ROOT, Services
from tests.history.importing import Importing

DAY = timedelta(days=1) // MICROSECOND
TABLES = (sign_ups, sign_in_links, sessions, invitations)


@pytest.mark.holds("people.md#new-people-7")
async def test_expired_rows_of_people_are_removed_after_a_sweep(services, database, sql) -> None:
    async with services() as s:
        user = await s.user(password=PASSWORD)
        await s.people.sign_in_links.create(ROOT, user.id)
        await s.people.invitations.to_site(ROOT, "bob@example.com", "none")
        await s.people.transactions.write(insert_sign_up, "eve@example.com")
        importing = Importing(s.world, database, sql, Metrics(), on_swept=remove_expired)
        await importing.sweep()
        assert counts(s) == [1, 1, 1, 1]
        with database.writing() as connection:
            for table, days in zip(TABLES, (1, 1, 30, 7), strict=True):
                connection.execute(table.update().values(expires_at=table.c.expires_at - days * DAY - 1))
        await importing.sweep()
        assert counts(s) == [0, 0, 0, 1]  # an invitation is kept for another month
        with database.writing() as connection:
            connection.execute(invitations.update().values(expires_at=invitations.c.expires_at - 30 * DAY))
        await importing.sweep()
        assert counts(s) == [0, 0, 0, 0]


def counts(s: Services) -> list[int]:
    with s.database.reading() as connection:
        return [int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0) for table in TABLES]

"""Changes that commands make in the store reach the audit trail of the database through the importer process."""

from __future__ import annotations

from tests.polling import until
from tests.processes.conftest import Serve
from tests.processes.test_importer import rows


async def test_event_of_a_command_reaches_the_database(serve: Serve) -> None:
    gateway = await serve()
    async with gateway.session() as session:
        await session.account_admin.disable(session.actor, "test")
        query = "SELECT action, object, after FROM audit_events WHERE action = 'accounts.disable'"
        await until(lambda: rows(gateway, query) != [])
        assert rows(gateway, query) == [("accounts.disable", "account:test", '{"state":"disabled"}')]

        async def is_empty() -> bool:
            return await session.outbox.read() == []

        await until(is_empty)

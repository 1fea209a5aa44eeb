"""Changes in the store leave events there, and the importer moves them to the database once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.admin.accounts import AccountAdmin
from gateway.admin.audit_mover import AuditMover
from gateway.admin.keys import KeyService
from gateway.admin.outbox import STREAM, AuditOutbox
from gateway.database.engine import Database
from gateway.errors import AlreadyExists, DatabaseUnavailable, Forbidden, InvalidValue, NotFound, StoreUnavailable
from gateway.history import binding
from gateway.history.sql_thread import SqlThread
from gateway.ledger.import_hints import DATABASE
from tests.admin.services import PASSWORD, ROOT, Services, token
from tests.polling import until
from tests.world import UNIT


def admins(s: Services) -> tuple[AccountAdmin, KeyService, AuditOutbox]:
    """The services of the store."""
    outbox = AuditOutbox(s.world.store)
    accounts = Accounts(s.world.store, s.world.ledger)
    return AccountAdmin(accounts, outbox), s.world.key_service, outbox


async def waiting(outbox: AuditOutbox) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Action, object, before and after of the events in the store."""
    return [(e.action, e.object, e.before, e.after) for _, e in await outbox.read() if e is not None]


async def test_each_change_in_the_store_has_an_event(services) -> None:
    async with services() as s:
        accounts, keys, outbox = admins(s)
        await accounts.create(ROOT, "new", balance=UNIT)
        await accounts.credit(ROOT, "new", 2 * UNIT, operation="op-1")
        await accounts.credit(ROOT, "new", 2 * UNIT, operation="op-1")
        await accounts.move(ROOT, "new", "vip")
        await accounts.disable(ROOT, "new")
        await accounts.enable(ROOT, "new")
        await accounts.allow(ROOT, "new", ["m"])
        await accounts.deny(ROOT, "new", ["m"])
        key = await keys.create(ROOT, "new", name="ci", budget=UNIT)
        await keys.revoke(ROOT, await keys.show(ROOT, key.id))
        await keys.revoke(ROOT, await keys.show(ROOT, key.id))
        account = "account:new"
        assert await waiting(outbox) == [
            ("accounts.create", account, {}, {"group": "default", "balance": "1"}),
            ("accounts.credit", account, {}, {"amount": "2", "operation": "op-1"}),
            ("accounts.move", account, {"group": "default"}, {"group": "vip"}),
            ("accounts.disable", account, {"state": "active"}, {"state": "disabled"}),
            ("accounts.enable", account, {"state": "disabled"}, {"state": "active"}),
            ("accounts.allow", account, {"allowed": []}, {"allowed": ["m"]}),
            ("accounts.deny", account, {"allowed": ["m"], "denied": []}, {"allowed": [], "denied": ["m"]}),
            ("keys.create", f"key:{key.id}", {}, {"name": "ci", "budget": "1"}),
            ("keys.revoke", f"key:{key.id}", {"state": "active"}, {"state": "revoked"}),
        ]
        assert key.text.encode() not in await s.world.store.client.dump(STREAM)


async def test_refused_change_has_no_event(services) -> None:
    async with services() as s:
        accounts, keys, outbox = admins(s)
        for attempt, error in (
            (accounts.create(ROOT, "acme"), AlreadyExists),
            (accounts.create(ROOT, "No Name"), InvalidValue),
            (accounts.credit(ROOT, "acme", 0), InvalidValue),
            (accounts.credit(ROOT, "nobody", 5), NotFound),
            (accounts.disable(ROOT, "nobody"), NotFound),
            (keys.create(ROOT, "nobody"), NotFound),
            (keys.create(ROOT, "acme", rpm=0), InvalidValue),
            (keys.show(ROOT, "key_none"), NotFound),
        ):
            with pytest.raises(error):
                await attempt
        assert await waiting(outbox) == []


async def test_actor_changes_only_what_the_scopes_allow(services) -> None:
    async with services() as s:
        accounts, keys, outbox = admins(s)
        bound, owner = token("keys", "accounts", account="acme"), await s.owner()
        foreign = await s.world.keys.create("other")
        for attempt in (
            accounts.credit(bound, "acme", UNIT),
            accounts.create(bound, "new"),
            accounts.create(token("accounts"), "new", balance=UNIT),
            accounts.create(token("accounts"), "new", group="vip"),
            accounts.disable(bound, "acme"),
            accounts.move(token("accounts"), "acme", "vip"),
            accounts.disable(owner, "acme"),
            keys.create(bound, "other"),
            keys.create(owner, "other"),
            keys.revoke(owner, await s.world.keys.show(foreign.id)),
        ):
            with pytest.raises(Forbidden):
                await attempt
        assert await waiting(outbox) == []
        assert (await keys.create(owner, "acme")).account == "acme"
        assert (await accounts.disable(token("accounts"), "acme")).state == "disabled"


@pytest.mark.holds("people.md#audit-trail-2")
async def test_events_of_the_store_are_moved_once(services, database, sql) -> None:
    async with services() as s:
        accounts, _, outbox = admins(s)
        await binding.bind(s.world.store, database, sql)
        await accounts.disable(ROOT, "acme")
        await accounts.enable(ROOT, "acme")
        entries = await outbox.read()
        threads = [SqlThread() for _ in range(2)]
        movers = [AuditMover(s.world.store, lambda: Database.open(database.address), thread) for thread in threads]
        assert True in await asyncio.gather(*(mover.move() for mover in movers))
        for _, event in entries:  # as if the mover was killed before it removed them
            assert event is not None
            await outbox.add(event)
        await movers[0].move()
        for thread in threads:
            thread.close()
        assert await outbox.read() == []
        assert await s.actions(account="acme") == ["accounts.disable", "accounts.enable"]
        assert [event.id for event in await s.events()] == [e.id for _, e in reversed(entries) if e is not None]


async def test_more_events_than_a_page_are_moved(services, database, sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.admin.outbox.PAGE", 2)
    async with services() as s:
        accounts, _, _ = admins(s)
        await binding.bind(s.world.store, database, sql)
        for _ in range(5):
            await accounts.disable(ROOT, "acme")
        assert await AuditMover(s.world.store, lambda: Database.open(database.address), sql).move()
        assert len(await s.actions(account="acme")) == 5


async def test_event_of_a_person_who_was_erased_meanwhile_loses_its_address(services, database, sql) -> None:
    async with services() as s:
        _, keys, _ = admins(s)
        await binding.bind(s.world.store, database, sql)
        gone, here = await s.owner(), await s.owner("other@example.com")
        for owner in (gone, here):
            await keys.create(structs.replace(owner, address="192.0.2.1"), "acme")
        await s.people.personal_data.erase(ROOT, gone.id)
        await AuditMover(s.world.store, lambda: Database.open(database.address), sql).move()
        addresses = {event.actor_id: event.address for event in await s.events(object="key")}
        assert addresses == {gone.id: "", here.id: "192.0.2.1"}


async def test_unreadable_event_does_not_stop_the_others(services, database, sql, caplog) -> None:
    async with services() as s:
        accounts, _, outbox = admins(s)
        await binding.bind(s.world.store, database, sql)
        await s.world.store.client.xadd(STREAM, {"e": b"not JSON"})
        await accounts.disable(ROOT, "acme")
        with caplog.at_level(logging.ERROR):
            assert await AuditMover(s.world.store, lambda: Database.open(database.address), sql).move()
        assert "cannot be read" in caplog.text
        assert await s.actions(account="acme") == ["accounts.disable"]
        assert await outbox.read() == []


async def test_another_database_gets_no_events(services, database, sql) -> None:
    async with services() as s:
        accounts, _, outbox = admins(s)
        mover = AuditMover(s.world.store, lambda: Database.open(database.address), sql)
        await accounts.disable(ROOT, "acme")
        await mover.move()
        await s.world.store.client.set(DATABASE, "db_of_another_machine")
        await mover.move()
        assert len(await outbox.read()) == 1
        assert await s.events() == []


async def test_events_wait_while_the_database_is_locked_for_a_copy(services, database, sql) -> None:
    async with services() as s:
        accounts, _, outbox = admins(s)
        await binding.bind(s.world.store, database, sql)
        mover = AuditMover(s.world.store, lambda: Database.open(database.address), sql)
        await accounts.disable(ROOT, "acme")
        lock = database.lock("importer")
        assert lock.take()
        assert not await mover.move()
        assert len(await outbox.read()) == 1
        lock.release()
        assert await mover.move()
        assert await outbox.read() == []


async def test_mover_goes_on_after_a_failure_and_stops_when_it_is_told(services, database, sql, monkeypatch) -> None:
    monkeypatch.setattr("gateway.admin.audit_mover.AFTER_A_FAILURE", 0.01)
    failures = iter([DatabaseUnavailable(detail="away"), RuntimeError("a bug")])

    def opened() -> Database:
        for error in failures:
            raise error
        return Database.open(database.address)

    async with services() as s:
        accounts, _, outbox = admins(s)
        await binding.bind(s.world.store, database, sql)
        await accounts.disable(ROOT, "acme")
        stop = asyncio.Event()
        running = asyncio.create_task(AuditMover(s.world.store, opened, sql).run(stop))

        async def is_empty() -> bool:
            return await outbox.read() == []

        await until(is_empty)
        stop.set()
        await running
        assert await s.actions(account="acme") == ["accounts.disable"]


async def test_event_that_the_store_refuses_is_logged(services, caplog, monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        def call(self, *command: object) -> Any:
            raise StoreUnavailable(detail="gone")

    async with services() as s:
        accounts, _, outbox = admins(s)
        monkeypatch.setattr(outbox, "_links", type("Links", (), {"link": lambda self, name: Away()})())
        with caplog.at_level(logging.ERROR):
            assert (await accounts.disable(ROOT, "acme")).state == "disabled"
        assert "could not be stored" in caplog.text and "accounts.disable" in caplog.text
        assert PASSWORD not in caplog.text

"""A store that is put back to an older state: what was closed since is closed again, from the audit trail."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.admin import closing_replay
from gateway.admin.accounts import AccountAdmin
from gateway.admin.audit_mover import AuditMover
from gateway.admin.outbox import MARK, AuditOutbox, known_mark, read_mark
from gateway.admin.refunds import Refunds
from gateway.admin.superseded_lines import SupersededLines
from gateway.admin.transactions import Transactions
from gateway.database.engine import Database
from gateway.history import binding
from gateway.history.audit import audit_history
from gateway.ledger.auditing.report import AuditReport
from gateway.store.known_text import KnownText
from tests.admin.services import ROOT, Services
from tests.world import UNIT


class Older:
    """A store, its database, and a state of the store to put back."""

    def __init__(self, s: Services, database: Database, sql: Any, known: KnownText | None = None) -> None:
        self.s = s
        self.database = database
        self.sql = sql
        self.known = known
        self.outbox = AuditOutbox(s.world.store)
        accounts = Accounts(s.world.store, s.world.ledger)
        self.accounts = AccountAdmin(accounts, self.outbox)
        self.keys = s.world.key_service
        self._saved: dict[bytes, tuple[bytes, int]] = {}

    def mover(self) -> AuditMover:
        """The mover of a process that has just started."""
        return AuditMover(self.s.world.store, lambda: Database.open(self.database.address), self.sql, self.known)

    async def begin(self) -> None:
        """Bind the two, and move what is there."""
        await binding.bind(self.s.world.store, self.database, self.sql)
        await self.mover().move()

    async def save(self) -> None:
        """Remember the whole store."""
        client: Any = self.s.world.store.client
        self._saved = {name: (await client.dump(name), await client.pttl(name)) for name in await client.keys("*")}

    async def put_back(self) -> None:
        """The store as it was at `save`."""
        client: Any = self.s.world.store.client
        await client.flushall()
        for name, (value, ttl) in self._saved.items():
            await client.restore(name, max(ttl, 0), value)

    async def state(self, key_id: str) -> str:
        """The state of a key."""
        return (await self.s.world.keys.show(key_id)).state

    async def audit(self) -> AuditReport:
        """What the audit of the database finds."""
        return await audit_history(self.s.world.store, self.database, self.sql)


@pytest.fixture
def older(services, database, sql, tmp_path: Path) -> Any:
    return lambda s: Older(s, database, sql, known_mark(tmp_path))


@pytest.mark.holds("operations/backup.md#older-store-7", "security.md#backups-and-older-stores-3")
async def test_what_was_closed_since_is_closed_again(services, older, caplog) -> None:
    async with services() as s:
        o = older(s)
        made = [await o.keys.create(ROOT, "acme", name=name) for name in ("revoked", "rotated", "untouched")]
        revoked, rotated, untouched = (key.id for key in made)
        await o.begin()
        await o.save()
        await o.keys.revoke(ROOT, await o.keys.show(ROOT, revoked))
        await o.keys.rotate(ROOT, await o.keys.show(ROOT, rotated), overlap=timedelta(seconds=0))
        await o.accounts.disable(ROOT, "other")
        await o.accounts.disable(ROOT, "acme")
        await o.accounts.enable(ROOT, "acme")
        await o.mover().move()
        await o.put_back()
        assert await o.state(revoked) == "active"
        mover = o.mover()
        assert await mover.move()
        assert [await o.state(one) for one in (revoked, rotated, untouched)] == ["revoked", "expired", "active"]
        shown = [(await s.world.accounts.show(name)).state for name in ("acme", "other")]
        assert shown == ["active", "disabled"]
        assert "3 keys and accounts were closed again" in caplog.text
        await mover.move()
        events = [event for event in await s.events() if event.actor_kind == "system"]
        assert sorted((event.action, event.object) for event in events) == [
            ("accounts.disable", "account:other"),
            ("keys.edit", f"key:{rotated}"),
            ("keys.revoke", f"key:{revoked}"),
            ("store.older", "store:changes"),
        ]


@pytest.mark.holds("operations/backup.md#older-store-7", "security.md#backups-and-older-stores-3")
async def test_keys_of_a_disabled_user_are_disabled_again_and_stay_so_until_they_are_enabled(services, older) -> None:
    async with services() as s:
        o = older(s)
        ann = await s.user("ann@example.com")
        await s.people.memberships.set(ROOT, ann.id, "acme", "member")
        key = await s.people.member_keys.create(ROOT, "acme", ann.id)
        await o.begin()
        await o.save()
        await s.people.users.disable(ROOT, ann.id)
        await o.mover().move()
        await o.put_back()
        await o.mover().move()
        assert await o.state(key.id) == "disabled"
        await s.people.users.enable(ROOT, ann.id)
        await o.mover().move()
        await o.mover().move()
        assert await o.state(key.id) == "active"


@pytest.mark.holds("operations/backup.md#older-store-8")
async def test_store_without_a_mark_is_compared_with_the_whole_trail(services, older) -> None:
    """It is from a backup of a version before the mark."""
    async with services() as s:
        o = older(s)
        key = await o.keys.create(ROOT, "acme")
        await o.begin()
        await s.world.store.client.delete(MARK)
        await o.save()
        await o.keys.revoke(ROOT, await o.keys.show(ROOT, key.id))
        await o.mover().move()
        await o.put_back()
        await o.mover().move()
        assert await o.state(key.id) == "revoked"


@pytest.mark.holds("operations/backup.md#older-store-8", "security.md#backups-and-older-stores-3")
async def test_store_that_is_put_back_under_a_running_importer_is_noticed(services, older) -> None:
    async with services() as s:
        o = older(s)
        key = await o.keys.create(ROOT, "acme")
        await o.begin()
        await o.save()
        mover = o.mover()
        await mover.move()
        await o.keys.revoke(ROOT, await o.keys.show(ROOT, key.id))
        await mover.move()
        await o.put_back()
        await mover.move()
        assert await o.state(key.id) == "revoked"


@pytest.mark.holds("operations/backup.md#older-store-9")
async def test_account_that_was_enabled_again_in_the_older_store_stays_so(services, older) -> None:
    async with services() as s:
        o = older(s)
        await o.begin()
        await o.save()
        await o.accounts.disable(ROOT, "acme")
        await o.mover().move()
        await o.put_back()
        await o.accounts.enable(ROOT, "acme")
        await o.mover().move()
        assert (await s.world.accounts.show("acme")).state == "active"


@pytest.mark.holds(
    "operations/audit.md#audit-27", "operations/backup.md#older-store-9", "security.md#backups-and-older-stores-3"
)
async def test_other_changes_are_named_by_the_audit_until_they_are_acknowledged(services, older, monkeypatch) -> None:
    monkeypatch.setattr(closing_replay, "NAMED", 3)
    async with services() as s:
        o = older(s)
        key = await o.keys.create(ROOT, "acme", rpm=5)
        await o.begin()
        await o.save()
        await o.keys.edit(ROOT, await o.keys.show(ROOT, key.id), rpm=50)
        await o.accounts.credit(ROOT, "acme", UNIT)
        for group in ("vip", "default", "vip"):
            await o.accounts.move(ROOT, "acme", group)
        await o.mover().move()
        assert (await o.audit()).clean
        await o.put_back()
        await o.mover().move()
        report = await o.audit()
        assert (report.lost_changes, report.clean) == (4, False)
        assert [(one.action, one.object) for one in report.changes] == [("accounts.move", "account:acme")] * 3
        assert (await s.world.keys.show(key.id)).rpm == 5
        ledger = s.world.ledger
        transactions = Transactions(o.database, o.sql)
        lines = SupersededLines(s.world.store, ledger, Refunds(ledger), o.outbox, transactions)
        assert await lines.acknowledge(ROOT) == 0
        assert (await o.audit()).clean


async def test_mover_that_was_killed_before_it_set_the_mark_finds_no_older_store(services, older, monkeypatch) -> None:
    async with services() as s:
        o = older(s)
        key = await o.keys.create(ROOT, "acme")
        await o.begin()

        async def killed(*arguments: object) -> None:
            raise RuntimeError("killed")

        await o.keys.edit(ROOT, await o.keys.show(ROOT, key.id), rpm=50)
        with monkeypatch.context() as patch:
            patch.setattr("gateway.admin.audit_mover.raise_mark", killed)
            with pytest.raises(RuntimeError):
                await o.mover().move()
        await o.mover().move()
        assert [event for event in await s.events() if event.actor_kind == "system"] == []
        assert await o.outbox.read() == []
        assert (await o.audit()).clean


@pytest.mark.holds("operations/backup.md#older-store-7")
async def test_mark_is_remembered_in_the_data_directory(services, older) -> None:
    async with services() as s:
        o = older(s)
        await o.begin()
        await o.accounts.disable(ROOT, "acme")
        await o.mover().move()
        mark = await read_mark(s.world.store)
        (event,) = await s.events(account="acme")
        assert o.known.read() == mark == event.id


async def test_sound_store_is_read_once_per_round_and_the_database_is_not_opened(services, older) -> None:
    async with services() as s:
        o = older(s)
        await o.begin()
        opened: list[int] = []

        def count() -> Database:
            opened.append(1)
            return Database.open(o.database.address)

        mover = AuditMover(s.world.store, count, o.sql)
        for _ in range(3):
            await mover.move()
        assert len(opened) == 1
        mover.suspect()
        await mover.move()
        await mover.move()
        assert len(opened) == 2


async def test_replay_reads_the_trail_page_by_page(services, older, monkeypatch) -> None:
    monkeypatch.setattr(closing_replay, "PAGE", 3)
    async with services() as s:
        o = older(s)
        keys = [(await o.keys.create(ROOT, "acme")).id for _ in range(8)]
        await o.begin()
        await o.save()
        for key in keys:
            await o.keys.revoke(ROOT, await o.keys.show(ROOT, key))
        await o.mover().move()
        moment = (await s.events(object=f"key:{keys[0]}"))[0].at
        with s.database.writing() as connection:  # all at one moment
            connection.exec_driver_sql(f"UPDATE audit_events SET at = {moment} WHERE action = 'keys.revoke'")
        await o.put_back()
        await o.mover().move()
        assert {await o.state(key) for key in keys} == {"revoked"}


async def test_database_of_another_store_closes_nothing(services, older) -> None:
    async with services() as s:
        o = older(s)
        key = await o.keys.create(ROOT, "acme")
        await o.begin()
        await o.save()
        await o.keys.revoke(ROOT, await o.keys.show(ROOT, key.id))
        await o.mover().move()
        await o.put_back()
        await s.world.store.client.set("history:database", "another")
        mover = o.mover()
        await mover.move()
        await mover.move()
        assert await o.state(key.id) == "active"

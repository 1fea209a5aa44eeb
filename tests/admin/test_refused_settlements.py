"""Settlements that were set aside are booked together: the lines of an account are read once for all its entries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.admin.outbox import AuditOutbox
from gateway.admin.refused_settlements import RefusedSettlements
from gateway.ledger import LedgerLine
from gateway.ledger.archive import read_archives
from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile
from tests.admin.services import ROOT
from tests.ledger.archiving import archive
from tests.ledger.records import settle
from tests.ledger.test_archive import aged
from tests.ledger.test_old_entries import reads
from tests.ledger.test_refused import DAY, entry, now_of
from tests.world import World

CALLS = 20


class Site:
    """An account with settled calls whose markers have expired, and a file with these calls and as many others."""

    def __init__(self, world: World, folder: Path, *, old: list[LedgerLine] | None = None) -> None:
        self.old = old  # what the database has
        self.asked = 0
        (folder / "journal").mkdir()
        self.file = RefusedFile(folder / "journal")
        self.service = RefusedSettlements(folder, world.accounts, world.ledger, AuditOutbox(world.store), self._older)

    async def _older(self, account: str, until: int, since: int) -> list[LedgerLine] | None:
        self.asked += 1
        if self.old is None:
            return None
        return [line for line in self.old if line.n <= until and line.milliseconds >= since]


async def settled_calls(world: World) -> list[Entry]:
    """Entries of calls that are settled, and of calls that are not, of three days ago."""
    key = await world.caller()
    holds = [await world.ledger.admit(*world.ask(key)) for _ in range(CALLS)]
    for hold in holds:
        await settle(world.ledger, hold, 5)
    client: Any = world.store.client
    await client.delete(*[f"{{a:acme}}:st:{hold.request_id}" for hold in holds])
    at = await now_of(world) - 3 * DAY
    names = [hold.request_id for hold in holds] + [f"req_{number}" for number in range(CALLS)]
    return [entry(name, key=key.id, at=at) for name in names]


async def test_lines_in_the_store_are_read_once_for_all_entries_of_an_account(world, tmp_path):
    async with world() as w:
        entries = await settled_calls(w)
        site = Site(w, tmp_path)
        for one in [*entries, entry("req_0", account="nobody")]:
            site.file.add(one)
        before, balance = await reads(w), (await w.accounts.show("acme")).balance
        done = await site.service.book(ROOT, None)
        assert await reads(w) - before <= 3
        assert [one.state for one in done] == ["booked"] * 2 * CALLS + ["no account"]
        assert [one.entry.request_id for one in done] == [one.request_id for one in entries] + ["req_0"]
        assert (await w.accounts.show("acme")).balance == balance - 5 * CALLS
        assert [(one.account, one.request_id) for one in site.file.read()] == [("nobody", "req_0")]
        events = [event for _, event in await AuditOutbox(w.store).read() if event is not None]
        assert len([event for event in events if event.action == "refused.book"]) == 2 * CALLS
        assert (await w.ledger.audit()).mismatches == []


async def test_lines_in_the_database_are_read_once_for_all_entries_of_an_account(world, tmp_path):
    async with world() as w:
        entries = await settled_calls(w)
        await aged(w)
        await archive(w, tmp_path / "archive")
        site = Site(w, tmp_path, old=list(read_archives([tmp_path / "archive"], "acme")))
        for one in entries:
            site.file.add(one)
        before, balance = await reads(w), (await w.accounts.show("acme")).balance
        done = await site.service.book(ROOT, [one.request_id for one in entries[1:]])
        assert (site.asked, await reads(w) - before <= 3) == (1, True)
        assert {one.state for one in done} == {"booked"}
        assert (await w.accounts.show("acme")).balance == balance - 5 * CALLS
        assert [one.request_id for one in site.file.read()] == [entries[0].request_id]


async def test_without_the_lines_that_left_the_store_no_entry_of_their_time_is_booked(world, tmp_path):
    async with world() as w:
        entries = await settled_calls(w)
        await aged(w)
        await archive(w, tmp_path / "archive")
        site = Site(w, tmp_path)
        for one in entries:
            site.file.add(one)
        balance = (await w.accounts.show("acme")).balance
        assert all("archive" in one.state for one in await site.service.book(ROOT, None))
        assert (await w.accounts.show("acme")).balance == balance
        assert site.file.read() == entries
        done = await site.service.book(ROOT, None, archives=[tmp_path / "archive"])
        assert {one.state for one in done} == {"booked"}
        assert (await w.accounts.show("acme")).balance == balance - 5 * CALLS

"""Old lines leave the store, and every proof still holds: alone, with the archive, and after a crash at any point."""

import asyncio
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.ledger import ArchiveError, Journal, Ledger, LedgerLine
from gateway.ledger.archive import Archive, read_archive
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.entry import Entry
from gateway.ledger.journal import read_entries
from tests.ledger.records import settle
from tests.ledger_lines import last_line

LINES = "{a:acme}:lg"


def long_ago() -> datetime:
    return datetime.now(UTC) - timedelta(hours=26)


async def aged(world, account: str = "acme", *, hours: int = 48, most: int | None = None) -> None:
    """Let the account's lines have been booked long ago, the last ones perhaps not."""
    client, name = world.store.client, f"{{a:{account}}}:lg"
    entries = await client.xrange(name)
    await client.delete(name)
    for place, (id_, fields) in enumerate(entries):
        ms, _, step = id_.decode().partition("-")
        back = hours * 3_600_000 if most is None or place < most else 0
        await client.xadd(name, fields, id=f"{int(ms) - back}-{step}")


async def busy(world, calls: int = 9, *, account: str = "acme"):
    """An account with an opening and that many charges."""
    key = await world.caller(account, budget=10**9)
    for n in range(calls):
        await settle(world.ledger, await world.admit(key), n + 1, provider="p")
    return key


async def lines(world, **rest) -> list[Any]:
    return [line async for line in world.ledger.lines("acme", **rest)]


async def clean(world, archive: Path, lines: int) -> None:
    """Stream alone and archive with stream both add up."""
    await world.proved()
    report = await world.ledger.audit(archives=[archive])
    assert (report.mismatches, report.lines) == ([], lines)


async def test_compacted_ledger_is_audited_with_and_without_its_archive(world, tmp_path):
    archive = tmp_path / "a.jsonl"
    async with world() as w:
        key = await busy(w)
        await aged(w, most=6)
        report = await w.ledger.compact(archive, before=long_ago())
        assert (report.accounts, report.lines) == (1, 6)
        assert await w.store.client.xlen(LINES) == 4
        await clean(w, archive, 10)
        await settle(w.ledger, await w.admit(key), 5)
        await clean(w, archive, 11)
        assert archive.stat().st_mode & 0o777 == 0o600
        assert [line.n for line in read_archive(archive)] == [1, 2, 3, 4, 5, 6]


async def test_emptied_stream_continues_with_the_next_number(world, tmp_path):
    async with world() as w:
        key = await busy(w)
        await aged(w)
        assert (await w.ledger.compact(tmp_path / "a", before=long_ago())).lines == 10
        assert await w.store.client.xlen(LINES) == 0
        await clean(w, tmp_path / "a", 10)
        await settle(w.ledger, await w.admit(key), 5)
        assert [line.n for line in await lines(w)] == [10, 11]
        await clean(w, tmp_path / "a", 11)


async def test_compacting_again_continues_where_it_stopped_and_then_does_nothing(world, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.ledger.compaction.PAGE", 4)
    archive = tmp_path / "a"
    async with world() as w:
        await busy(w)
        await aged(w, most=3)
        assert (await w.ledger.compact(archive, before=long_ago())).lines == 3
        before = archive.read_bytes()
        assert (await w.ledger.compact(archive, before=long_ago())).lines == 0
        assert archive.read_bytes() == before
        await aged(w)
        assert (await w.ledger.compact(archive, before=long_ago())).lines == 7
        assert archive.read_bytes().startswith(before)
        await clean(w, archive, 10)


async def test_several_accounts_share_a_file_and_several_files_are_audited_together(world, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    async with world() as w:
        await busy(w)
        await busy(w, 3, account="umbra")
        await aged(w, most=5)
        await aged(w, "umbra")
        assert (await w.ledger.compact(one, before=long_ago())).accounts == 2
        await aged(w)
        assert (await w.ledger.compact(two, before=long_ago())).lines == 5
        report = await w.ledger.audit(archives=[one, two])
        assert (report.mismatches, report.lines) == ([], 14)
        for files in ([two], [two, one]):
            assert any(m.rule.startswith("archive") for m in (await w.ledger.audit(archives=files)).mismatches)
        with pytest.raises(ArchiveError, match="continue the last archive"):
            await w.ledger.compact(one, before=long_ago())


async def test_lines_that_a_replay_may_need_are_never_compacted(world, tmp_path):
    async with world() as w:
        key = await busy(w)
        with pytest.raises(ArchiveError, match="25 h"):
            await w.ledger.compact(tmp_path / "a", before=datetime.now(UTC) - timedelta(hours=24))
        assert (await w.ledger.compact(tmp_path / "a", before=long_ago())).lines == 0
        await aged(w, hours=24)
        assert (await w.ledger.compact(tmp_path / "a", before=long_ago())).lines == 0
        await settle(w.ledger, await w.admit(key), 1)
        await w.proved()


async def test_script_refuses_recent_lines_and_a_changed_archive_checkpoint(world):
    async with world() as w:
        await busy(w, 2)
        run = w.store.link("x").eval
        compact = w.ledger._scripts.compact
        (*_, last) = await lines(w)
        age = 25 * 3600 * 10**6
        told = [last.n, last.balance, last.id, "hash"]
        before = await w.dump()
        assert await run(compact, ["{a:acme}"], [0, "", age, *told]) == 3
        assert await run(compact, ["{a:acme}"], [1, "", 0, *told]) == 1
        assert await run(compact, ["{a:acme}"], [0, "other", 0, *told]) == 1
        assert await run(compact, ["{a:acme}"], [0, "", 0, last.n, last.balance + 1, last.id, "hash"]) == 2
        assert await w.dump() == before
        assert await run(compact, ["{a:acme}"], [0, "", 0, *told]) == 0


class Crashed(Exception):
    """Stands for a power cut."""


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 1, 100, 400, None])
async def test_crash_between_archive_and_store_loses_nothing_and_the_next_run_continues(
    world, tmp_path, monkeypatch, cut
):
    """The file ends after `cut` bytes of the page that was being written; None: all of it is there."""
    monkeypatch.setattr("gateway.ledger.compaction.PAGE", 4)
    archive = tmp_path / "a"
    async with world() as w:
        await busy(w)
        await aged(w)
        append, written = Archive.append, []

        def dying(self, lines):
            start = archive.stat().st_size
            append(self, lines)
            written.append(lines)
            if len(written) == 2:
                if cut is not None:
                    os.truncate(archive, start + cut)
                raise Crashed

        monkeypatch.setattr(Archive, "append", dying)
        with pytest.raises(Crashed):
            await w.ledger.compact(archive, before=long_ago())
        monkeypatch.setattr(Archive, "append", append)
        await w.proved()
        assert (await read_archive_checkpoint(w.store, "acme")).n == 4
        if cut is None or cut == 0:
            await clean(w, archive, 10)
        assert (await w.ledger.compact(archive, before=long_ago())).lines == 6
        await clean(w, archive, 10)
        assert [line.n for line in read_archive(archive)] == list(range(1, 11))


async def test_compaction_lost_by_the_store_is_repeated(world, tmp_path):
    async with world() as w:
        await busy(w)
        await aged(w)
        before = await w.store.client.dump(LINES)
        await w.ledger.compact(tmp_path / "a", before=long_ago())
        written = (tmp_path / "a").read_bytes()
        await w.store.client.delete("{a:acme}:ca")
        await w.store.client.restore(LINES, 0, before, replace=True)
        await clean(w, tmp_path / "a", 10)
        assert (await w.ledger.compact(tmp_path / "a", before=long_ago())).lines == 10
        assert (tmp_path / "a").read_bytes() == written
        await clean(w, tmp_path / "a", 10)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda told: told[3].__setitem__("amount", -1), "archive hash 4"),
        (lambda told: told[3].__setitem__("meta", "{}"), "archive hash 4"),
        (lambda told: told[3].__setitem__("account", "umbra"), "archive sequence"),
        (lambda told: told.pop(4), "archive sequence"),
        (lambda told: told.pop(), "archive"),
        (lambda told: told.pop(0), "archive"),
        (lambda told: told.clear(), "archive"),
    ],
)
async def test_manipulated_archive_is_found(world, tmp_path, damage, rule):
    archive = tmp_path / "a"
    async with world() as w:
        await busy(w)
        await aged(w)
        await w.ledger.compact(archive, before=long_ago())
        told = [msgspec.json.decode(line) for line in archive.read_bytes().splitlines()]
        damage(told)
        archive.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in told))
        await w.proved()
        assert rule in [m.rule for m in (await w.ledger.audit(archives=[archive])).mismatches]


@pytest.mark.parametrize(
    ("field", "rule"), [("bal", "archive balance"), ("hash", "archive hash"), ("k:x", "archive keys")]
)
async def test_manipulated_archive_checkpoint_is_found(world, tmp_path, field, rule):
    async with world() as w:
        await busy(w)
        await aged(w)
        await w.ledger.compact(tmp_path / "a", before=long_ago())
        await w.store.client.hset("{a:acme}:ca", field, 5)
        assert rule in [m.rule for m in (await w.ledger.audit(archives=[tmp_path / "a"])).mismatches]


async def test_archive_of_another_ledger_is_refused(world, tmp_path):
    archive = tmp_path / "a"
    async with world() as w:
        await busy(w)
        await aged(w)
        await w.ledger.compact(archive, before=long_ago())
    async with world() as w:
        await busy(w)
        await aged(w)
        with pytest.raises(ArchiveError, match="another line 1"):
            await w.ledger.compact(archive, before=long_ago())
        await w.proved()
        assert await w.store.client.xlen(LINES) == 10


async def test_archive_readable_by_others_or_in_use_is_refused(world, tmp_path):
    archive = tmp_path / "a"
    archive.touch(mode=0o644)
    async with world() as w:
        await busy(w)
        with pytest.raises(ArchiveError, match="chmod 600"):
            await w.ledger.compact(archive, before=long_ago())
        archive.chmod(0o600)
        with closing(Archive.open(archive, {})):
            with pytest.raises(ArchiveError, match="in use"):
                await w.ledger.compact(archive, before=long_ago())
            with pytest.raises(ArchiveError, match="in use"):
                await w.ledger.audit(archives=[archive])


async def test_ledger_that_does_not_add_up_is_not_compacted(world, tmp_path):
    async with world() as w:
        await busy(w)
        await aged(w)
        (_, (second, _), *_) = await w.store.client.xrange(LINES)
        await w.store.client.xdel(LINES, second)
        with pytest.raises(ArchiveError, match="does not add up at line 3"):
            await w.ledger.compact(tmp_path / "a", before=long_ago())
        assert (await w.ledger.audit()).mismatches != []


def unsealed(lines: list[LedgerLine]) -> list[LedgerLine]:
    """The lines without their place in the hash chain, which only an archive file has."""
    return [structs.replace(line, hash="") for line in lines]


async def test_lines_and_receipts_are_read_with_and_without_the_archive(world, tmp_path):
    async with world() as w:
        key = await busy(w)
        whole = None
        await aged(w, most=6)
        whole = await lines(w)
        hold = await w.admit(key)
        await w.ledger.compact(tmp_path / "a", before=long_ago())
        carried, *kept = await lines(w)
        assert (carried.kind, carried.n, carried.balance, carried.amount) == (
            "carry",
            6,
            whole[5].balance,
            whole[5].balance,
        )
        assert kept == whole[6:]
        assert unsealed(await lines(w, archives=[tmp_path / "a"])) == whole
        recent = datetime.now(UTC) - timedelta(hours=1)
        assert await lines(w, since=recent) == await lines(w, since=recent, archives=[tmp_path / "a"]) == whole[6:]
        some = whole[3].at
        assert unsealed(await lines(w, since=some, archives=[tmp_path / "a"])) == [
            line for line in whole if line.at >= some
        ]
        await settle(w.ledger, hold, 3)
        receipt = await last_line(w.ledger, "acme", hold.request_id)
        assert receipt is not None and receipt.amount == -3


async def test_late_settlement_of_an_archived_time_is_set_aside_and_not_charged_twice(world, tmp_path, caplog):
    async with world() as w:
        key = await w.caller()
        hold = await w.admit(key)
        await settle(w.ledger, hold, 5)
        await aged(w)
        await w.store.client.delete(f"{{a:acme}}:st:{hold.request_id}")
        admitted = hold.admitted_at - 48 * 3600 * 10**6
        late = Entry("acme", hold.request_id, key.id, "use", -5, 1, admitted, "{}")
        balance = (await w.accounts.show("acme")).balance
        journal = Journal(tmp_path / "journal")
        writer = Ledger(w.store, {}, journal=journal)._writer
        await writer.send(late)
        assert (await w.accounts.show("acme")).balance == balance
        assert not (tmp_path / "journal" / "refused.jsonl").exists()
        await w.ledger.compact(tmp_path / "a", before=long_ago())
        await writer.send(late)
        assert "left the store" in caplog.text
        journal.close()
        assert [entry.request_id for entry in read_entries(tmp_path / "journal" / "refused.jsonl")] == [hold.request_id]
        assert (await w.accounts.show("acme")).balance == balance
        await clean(w, tmp_path / "a", 2)


async def test_audit_during_compaction_reports_nothing(world, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.ledger.compaction.PAGE", 3)
    monkeypatch.setattr("gateway.ledger.line.PAGE", 2)
    monkeypatch.setattr("gateway.ledger.audit.TRIES", 100)

    async with world() as w:
        await busy(w, 60)
        await aged(w)
        compacting = asyncio.ensure_future(w.ledger.compact(tmp_path / "a", before=long_ago()))
        while not compacting.done():
            await w.proved()
        assert (await compacting).lines == 61
        await clean(w, tmp_path / "a", 61)

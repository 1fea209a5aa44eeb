"""Lines that older versions moved to archives: every proof still holds, alone and with the archive."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.ledger import Journal, Ledger, LedgerLine
from gateway.ledger.archive import read_archive
from gateway.ledger.entry import Entry
from gateway.ledger.journal import read_entries
from gateway.ledger.scripts import load_script
from tests.ledger.archiving import archive
from tests.ledger.records import settle
from tests.ledger_lines import last_line

LINES = "{a:acme}:lg"


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


async def clean(world, file: Path, lines: int) -> None:
    """Stream alone and archive with stream both add up."""
    await world.proved()
    report = await world.ledger.audit(archives=[file])
    assert (report.mismatches, report.lines) == ([], lines)


@pytest.mark.holds("operations/audit.md#audit-20")
async def test_archived_ledger_is_audited_with_and_without_its_archive(world, tmp_path):
    file = tmp_path / "a.jsonl"
    async with world() as w:
        key = await busy(w)
        await aged(w, most=6)
        assert await archive(w, file) == 6
        assert await w.store.client.xlen(LINES) == 4
        await clean(w, file, 10)
        await settle(w.ledger, await w.admit(key), 5)
        await clean(w, file, 11)
        assert [line.n for line in read_archive(file)] == [1, 2, 3, 4, 5, 6]


async def test_emptied_stream_continues_with_the_next_number(world, tmp_path):
    async with world() as w:
        key = await busy(w)
        await aged(w)
        assert await archive(w, tmp_path / "a") == 10
        assert await w.store.client.xlen(LINES) == 0
        await clean(w, tmp_path / "a", 10)
        await settle(w.ledger, await w.admit(key), 5)
        assert [line.n for line in await lines(w)] == [10, 11]
        await clean(w, tmp_path / "a", 11)


async def test_several_accounts_share_a_file_and_several_files_are_audited_together(world, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    async with world() as w:
        await busy(w)
        await busy(w, 3, account="umbra")
        await aged(w, most=5)
        await aged(w, "umbra")
        assert await archive(w, one) == 9
        await aged(w)
        assert await archive(w, two) == 5
        report = await w.ledger.audit(archives=[one, two])
        assert (report.mismatches, report.lines) == ([], 14)
        for files in ([two], [two, one]):
            assert any(m.rule.startswith("archive") for m in (await w.ledger.audit(archives=files)).mismatches)


async def test_script_refuses_recent_lines_and_a_changed_archive_checkpoint(world):
    async with world() as w:
        await busy(w, 2)
        run = w.store.link("x").eval
        trim = load_script("trim")
        (*_, last) = await lines(w)
        age = 25 * 3600 * 10**6
        told = [last.n, last.balance, last.id, "hash"]
        before = await w.dump()
        assert await run(trim, ["{a:acme}"], [0, "", age, *told]) == 3
        assert await run(trim, ["{a:acme}"], [1, "", 0, *told]) == 1
        assert await run(trim, ["{a:acme}"], [0, "other", 0, *told]) == 1
        assert await run(trim, ["{a:acme}"], [0, "", 0, last.n, last.balance + 1, last.id, "hash"]) == 2
        assert await w.dump() == before
        assert await run(trim, ["{a:acme}"], [0, "", 0, *told]) == 0


@pytest.mark.holds("operations/audit.md#audit-20")
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
    file = tmp_path / "a"
    async with world() as w:
        await busy(w)
        await aged(w)
        await archive(w, file)
        told = [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
        damage(told)
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in told))
        await w.proved()
        assert rule in [m.rule for m in (await w.ledger.audit(archives=[file])).mismatches]


@pytest.mark.parametrize(
    ("field", "rule"), [("bal", "archive balance"), ("hash", "archive hash"), ("k:x", "archive keys")]
)
async def test_manipulated_archive_checkpoint_is_found(world, tmp_path, field, rule):
    async with world() as w:
        await busy(w)
        await aged(w)
        await archive(w, tmp_path / "a")
        await w.store.client.hset("{a:acme}:ca", field, 5)
        assert rule in [m.rule for m in (await w.ledger.audit(archives=[tmp_path / "a"])).mismatches]


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
        await archive(w, tmp_path / "a")
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


@pytest.mark.holds("scaling.md#limits-7")
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
        await archive(w, tmp_path / "a")
        await writer.send(late)
        assert "left the store" in caplog.text
        journal.close()
        assert [entry.request_id for entry in read_entries(tmp_path / "journal" / "refused.jsonl")] == [hold.request_id]
        assert (await w.accounts.show("acme")).balance == balance
        await clean(w, tmp_path / "a", 2)


async def test_audit_while_lines_leave_the_store_reports_nothing(world, tmp_path, monkeypatch):
    monkeypatch.setattr("gateway.ledger.line.PAGE", 2)
    monkeypatch.setattr("gateway.ledger.auditing.account.TRIES", 100)

    async with world() as w:
        await busy(w, 60)
        await aged(w)
        archiving = asyncio.ensure_future(archive(w, tmp_path / "a", page=3))
        while not archiving.done():
            await w.proved()
        assert await archiving == 61
        await clean(w, tmp_path / "a", 61)

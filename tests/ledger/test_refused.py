"""`refused.jsonl` is read, and its settlements are booked later without a double charge."""

from __future__ import annotations

import pytest

from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile
from tests.ledger.archiving import archive
from tests.ledger.records import settle
from tests.ledger.test_archive import aged

DAY = 24 * 3600 * 1_000_000  # µs


def entry(request_id: str, *, account: str = "acme", key: str = "key_x", at: int = 0) -> Entry:
    return Entry(account, request_id, key, "use", -5, 1, at, f'{{"key":"{key}","model":"m"}}', hold=10)


async def test_refused_entry_is_booked_once_its_account_exists_and_never_twice(world):
    async with world() as w:
        key = await w.caller()
        for _ in range(3):
            assert await w.ledger.book_refused("acme", [entry("req_1", key=key.id, at=await now_of(w))]) == [""]
        assert (await w.accounts.show("acme")).balance == 10**10 - 5
        assert (await w.ledger.audit()).mismatches == []


async def test_entry_that_cannot_be_booked_keeps_none_of_the_others_back(world):
    async with world() as w:
        key = await w.caller()
        at = await now_of(w)
        before = (await w.accounts.show("acme")).balance
        await w.store.client.hset("{a:acme}:rv", "req_05", "garbage")
        entries = [entry(f"req_{n:02}", key=key.id, at=at) for n in range(12)]
        reasons = await w.ledger.book_refused("acme", entries)
        assert [one.request_id for one, reason in zip(entries, reasons, strict=True) if reason] == ["req_05"]
        booked = sum(one.amount for one in entries if one.request_id != "req_05")
        assert (await w.accounts.show("acme")).balance == before + booked


async def test_refused_entry_of_an_unknown_account_stays_refused(world):
    async with world() as w:
        unknown = [entry(f"req_{number}", account="nobody") for number in range(20)]
        assert await w.ledger.book_refused("nobody", unknown) == ["there is no account nobody"] * 20


async def test_old_refused_entry_is_booked_only_if_the_archives_prove_that_it_was_not(world, tmp_path):
    async with world() as w:
        key = await w.caller()
        booked = await w.ledger.admit(*w.ask(key))
        await settle(w.ledger, booked, 5)
        await w.store.client.delete(f"{{a:acme}}:st:{booked.request_id}")
        file = tmp_path / "archive"
        await aged(w)
        await archive(w, file)
        before = (await w.accounts.show("acme")).balance
        old = await now_of(w) - 3 * DAY
        other = entry("req_other", at=old)
        assert "archive" in (await w.ledger.book_refused("acme", [other]))[0]
        assert await w.ledger.book_refused("acme", [entry(booked.request_id, at=old)], archives=[file]) == [""]
        assert (await w.accounts.show("acme")).balance == before
        for _ in range(2):
            both = [entry(booked.request_id, at=old), other]
            assert await w.ledger.book_refused("acme", both, archives=[file]) == ["", ""]
        assert (await w.accounts.show("acme")).balance == before - 5


async def now_of(world) -> int:
    seconds, micros = await world.store.client.time()
    return seconds * 1_000_000 + micros


def test_file_that_a_worker_appends_to_while_it_is_taken_loses_nothing(tmp_path):
    ours, theirs = RefusedFile(tmp_path), RefusedFile(tmp_path)
    for name in ("one", "two"):
        assert theirs.add(entry(name))
    taken = ours.take()
    assert [found.request_id for found in taken] == ["one", "two"]
    assert theirs.add(entry("three"))
    assert [found.request_id for found in RefusedFile(tmp_path).read()] == ["one", "two", "three"]  # also after a crash
    ours.give_back(taken[1:])
    assert sorted(found.request_id for found in RefusedFile(tmp_path).read()) == ["three", "two"]
    assert [path.name for path in tmp_path.iterdir()] == ["refused.jsonl"]


def test_two_workers_set_a_request_aside_once(tmp_path):
    first, second = RefusedFile(tmp_path), RefusedFile(tmp_path)
    assert first.add(entry("one"))
    assert not second.add(entry("one"))
    assert second.add(entry("two"))
    assert not first.add(entry("two"))


@pytest.mark.parametrize("line", [b"[1,2", b"{}"])
def test_line_that_cannot_be_read_is_named_and_the_file_stays(tmp_path, line):
    file = RefusedFile(tmp_path)
    file.add(entry("one"))
    file.path.write_bytes(file.path.read_bytes() + line + b"\n")
    with pytest.raises(Exception, match="line 2"):
        RefusedFile(tmp_path).take()
    assert file.path.exists()
    assert RefusedFile(tmp_path).add(entry("two"))

"""Addresses of callers reach the database once, are found by call and by key, and leave it in time."""

from __future__ import annotations

import time
from datetime import timedelta
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from gateway.database.people_tables import users
from gateway.database.tables import call_addresses, key_addresses
from gateway.errors import StoreUnavailable
from gateway.history import caller_addresses
from gateway.history.calendar import DAY
from gateway.history.caller_addresses import (
    add_addresses,
    address_of,
    addresses_of_keys,
    forget_addresses,
    forget_late_addresses,
    remove_old_addresses,
)
from gateway.ledger import caller_addresses as ledger_addresses
from gateway.ledger.caller_addresses import (
    EVERY,
    FULL,
    MOST,
    STREAM,
    TOGETHER,
    AddressBatch,
    CallerAddresses,
    Kept,
    append_addresses,
)
from tests.history.made_lines import Account
from tests.polling import until

MONTH = timedelta(days=30)
TABLES = (call_addresses, key_addresses)


class Killed(Exception):
    """The importer is killed here."""


def now() -> int:
    return time.time_ns() // 1000


def rows(database) -> list[int]:
    with database.reading() as connection:
        return [connection.scalar(sa.select(sa.func.count()).select_from(table)) for table in TABLES]


async def called(w, *calls: tuple[str, str, str], kept: Kept = "whole") -> None:
    """Calls of key, request id and address."""
    noted = CallerAddresses(w.store, kept, MONTH)
    for key_id, request_id, address in calls:
        noted.note((key_id, request_id, address, "", ()))
    await noted.send()


@pytest.mark.holds("operations/history.md#addresses-of-callers-2")
async def test_addresses_move_to_the_database_and_are_found_by_call_and_key(world, importing, database) -> None:
    async with world() as w:
        await called(
            w, ("key_a", "req_1", "192.0.2.7"), ("key_a", "req_2", "2001:db8::1"), ("key_b", "req_3", "192.0.2.7")
        )
        await importing(w).round()
        assert await w.store.client.xlen(STREAM) == 0
        with database.reading() as connection:
            assert address_of(connection, "key_a", "req_2", now()) == "2001:db8::1"
            assert address_of(connection, "key_b", "req_2", now()) == ""
            found = addresses_of_keys(connection, ["key_a"])
            assert {(one.key, one.address) for one in found} == {("key_a", "192.0.2.7"), ("key_a", "2001:db8::1")}
            assert all(0 <= now() - one.first < 60_000_000 for one in found)
            assert len(addresses_of_keys(connection, ["key_a", "key_b"])) == 3
            assert len(addresses_of_keys(connection, ["key_a", "key_b"], most=2)) == 2


@pytest.mark.holds("operations/history.md#addresses-of-callers-2")
async def test_batch_that_comes_again_changes_nothing(world, importing, database, monkeypatch) -> None:
    async with world() as w:
        await called(w, ("key_a", "req_1", "192.0.2.7"))
        [(_, fields)] = await w.store.client.xrange(STREAM)

        async def killed(*args) -> None:
            raise Killed

        monkeypatch.setattr(caller_addresses, "remove_addresses", killed)
        with pytest.raises(Killed):
            await importing(w).round()
        monkeypatch.undo()
        assert await w.store.client.xlen(STREAM) == 1
        await w.store.client.xadd(STREAM, fields)
        await w.store.client.xadd(STREAM, {"b": "unreadable"})
        await importing(w).round()
        assert await w.store.client.xlen(STREAM) == 0
        assert rows(database) == [1, 1]


def test_times_of_a_key_are_its_first_and_last_use_in_any_order(database) -> None:
    at = now() // DAY * DAY + 1000
    for moment in (at, at - DAY, at + 500, at + 200):
        add_addresses(database, [AddressBatch(moment, [("key_a", "192.0.2.0/24", [f"req_{moment}"])])])
    with database.reading() as connection:
        [one] = addresses_of_keys(connection, ["key_a"])
        assert (one.first, one.last) == (at - DAY, at + 500)
        for ended in (at - DAY - 2000, at - DAY + 100_000_000, at - DAY - 2_000_000_000):
            assert address_of(connection, "key_a", f"req_{at - DAY}", ended) == "192.0.2.0/24"  # also before midnight
        assert address_of(connection, "key_a", f"req_{at - DAY}"[:-1], at - DAY) == ""
        assert address_of(connection, "key_b", f"req_{at - DAY}", at - DAY) == ""


def test_calls_of_a_key_are_few_rows(database) -> None:
    """A row for each call took the importer half as long as the whole rest of its line."""
    at = now() // DAY * DAY + 1000
    batches = [
        AddressBatch(at + number, [(f"key_{key}", "192.0.2.0/24", [f"req_{number}_{key}_{n}" for n in range(50)])])
        for number in range(4)
        for key in "ab"
    ]
    add_addresses(database, batches)
    assert rows(database) == [2, 2]
    add_addresses(database, [*batches, AddressBatch(at + 9, [("key_a", "192.0.3.0/24", ["req_late"])])])
    assert rows(database) == [2, 3]
    with database.reading() as connection:
        assert address_of(connection, "key_a", "req_late", at) == "192.0.3.0/24"
        assert address_of(connection, "key_b", "req_3_b_49", at) == "192.0.2.0/24"


@pytest.mark.holds("operations/history.md#addresses-of-callers-2")
async def test_sweep_removes_addresses_after_their_time(world, importing, database) -> None:
    async with world() as w:
        await w.caller()
        for days in (40, 31, 29, 0):
            batch = AddressBatch(now() - days * DAY, [("key_a", f"192.0.2.{days}", [f"req_{days}"])])
            add_addresses(database, [batch])
        one = importing(w, keep_addresses=MONTH)
        await one.sweep()
        with database.reading() as connection:
            assert [found.address for found in addresses_of_keys(connection, ["key_a"])] == ["192.0.2.0", "192.0.2.29"]
        assert rows(database) == [2, 2]
        remove_old_addresses(database, timedelta(hours=1))
        assert rows(database) == [1, 1]


def test_very_many_old_addresses_are_removed_in_parts(database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_addresses, "REMOVED_TOGETHER", 2)
    for number in range(10):
        for at in (now() - 2 * DAY, *([now()] if number == 0 else [])):
            add_addresses(database, [AddressBatch(at, [(f"key_{number}", "192.0.2.7", ["req_1"])])])
    writing = Mock(side_effect=database.writing)
    monkeypatch.setattr(database, "writing", writing)
    remove_old_addresses(database, timedelta(hours=1))
    assert rows(database) == [1, 1] and writing.call_count > 5


def test_addresses_of_some_keys_are_forgotten(database) -> None:
    for key_id in ("key_a", "key_b"):
        add_addresses(database, [AddressBatch(now() - 364 * DAY, [(key_id, "192.0.2.7", ["req_1"])])])
    with database.writing() as connection:
        forget_addresses(connection, ["key_a", "key_c"])
    with database.reading() as connection:
        assert addresses_of_keys(connection, ["key_a"]) == []
        assert len(addresses_of_keys(connection, ["key_b"])) == 1
    assert rows(database) == [1, 1]


async def test_addresses_of_a_busy_worker_are_sent_before_their_time(world) -> None:
    """Else those of more than a thousand calls a second would be dropped."""
    async with world() as w:
        noted = CallerAddresses(w.store, "shortened", MONTH)
        noted.sender.start()
        for number in range(FULL):
            noted.note(("key_a", f"req_{number}", "192.0.2.7", "", ()))

        async def are_sent() -> bool:
            return bool(await w.store.client.xlen(STREAM) == FULL // TOGETHER)

        await until(are_sent, within=EVERY / 2)
        await noted.sender.stop()


@pytest.mark.holds("operations/history.md#addresses-of-callers-2")
async def test_what_waits_in_the_store_is_bounded_and_leaves_it_in_time(world) -> None:
    async with world() as w:
        noted = CallerAddresses(w.store, "shortened", MONTH)
        for number in range(MOST + 5):
            noted.note(("key_a", f"req_{number}", "192.0.2.7", "", ()))
        await noted.send()
        assert await w.store.client.xlen(STREAM) == MOST // TOGETHER
        await noted.send()
        assert await w.store.client.xlen(STREAM) == MOST // TOGETHER
        assert 0 < await w.store.client.ttl(STREAM) <= MONTH.total_seconds()
        for moment in (*(now() for _ in range(5)), now() + 31 * DAY):  # so few are in one node of the stream
            await append_addresses(w.store, AddressBatch(moment, []), MONTH)
        assert await w.store.client.xlen(STREAM) == 0


async def test_batches_that_are_too_old_leave_the_store_although_newer_ones_are_in_the_same_node(world) -> None:
    async with world() as w:
        for days in (40, 31, 29):
            await w.store.client.xadd(STREAM, {"b": b"[]"}, id=f"{(now() - days * DAY) // 1000}-0")
        await append_addresses(w.store, AddressBatch(now(), []), MONTH)
        assert await w.store.client.xlen(STREAM) == 2


async def test_calls_that_are_noted_while_a_batch_is_sent_are_in_the_next_one(
    world, importing, database, monkeypatch
) -> None:
    async with world() as w:
        noted = CallerAddresses(w.store, "whole", MONTH)
        noted.note(("key_a", "req_1", "192.0.2.7", "", ()))

        async def appended(*args) -> None:
            monkeypatch.undo()
            noted.note(("key_a", "req_2", "192.0.2.7", "", ()))
            await append_addresses(*args)

        monkeypatch.setattr(ledger_addresses, "append_addresses", appended)
        await noted.send()
        assert noted._waiting == [] and await w.store.client.xlen(STREAM) == 2
        await importing(w).round()
        with database.reading() as connection:
            found = [address_of(connection, "key_a", f"req_{number}", now()) for number in (1, 2)]
        assert found == ["192.0.2.7"] * 2 and rows(database) == [1, 1]


async def test_what_could_not_be_sent_is_sent_again(world, monkeypatch) -> None:
    async with world() as w:
        noted = CallerAddresses(w.store, "whole", MONTH)
        noted.note(("key_a", "req_1", "192.0.2.7", "", ()))

        async def failed(*args) -> None:
            raise StoreUnavailable

        monkeypatch.setattr(ledger_addresses, "append_addresses", failed)
        with pytest.raises(StoreUnavailable):
            await noted.send()
        monkeypatch.undo()
        await noted.send()
        assert await w.store.client.xlen(STREAM) == 1


@pytest.mark.holds("operations/history.md#addresses-of-callers-1")
@pytest.mark.parametrize(
    ("kept", "peer", "forwarded", "address"),
    [
        ("whole", "192.0.2.77", "198.51.100.1", "192.0.2.77"),
        ("whole", "10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("shortened", "192.0.2.77", "", "192.0.2.0/24"),
        ("shortened", "10.0.0.1", "203.0.113.9", "203.0.113.0/24"),
        ("shortened", "2001:db8:1:2:3:4:5:6", "", "2001:db8:1::/48"),
        ("shortened", "::ffff:192.0.2.77", "", "192.0.2.0/24"),
        ("shortened", "fe80::1%eth0", "", "fe80::/48"),
        ("shortened", "", "", ""),
    ],
)
async def test_address_is_that_behind_trusted_proxies_whole_or_shortened(
    world, kept: Kept, peer: str, forwarded: str, address: str
) -> None:
    async with world() as w:
        noted = CallerAddresses(w.store, kept, MONTH)
        batch = noted.batch_of([("key_a", "req_1", peer, forwarded, ("10.0.0.0/8",))])
        assert batch.uses == [("key_a", address, ["req_1"])]


def called_by(database, user: str, key: str, *, days: int = 0) -> None:
    """A call of a moment, or of some days ago, with the key of the user."""
    account = Account(database)
    account.call(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - days * 86_400)), 1, key=key, user=user)
    account.flush()


def keep_user(database, user: str) -> None:
    names = {"id": user, "email": f"{user}@example.com", "name": "", "role": "none", "created_at": 1}
    with database.writing() as connection:
        connection.execute(users.insert().values(names))


def keys_with_addresses(database) -> set[str]:
    with database.reading() as connection:
        return {one.key for one in addresses_of_keys(connection, ["key_gone", "key_ann", "key_program"])}


BATCH = [(key, "192.0.2.7", [f"req_{key}"]) for key in ("key_gone", "key_ann", "key_program")]


@pytest.mark.holds("people.md#export-and-erasure-2")
async def test_addresses_that_move_after_the_erasure_of_a_user_are_not_kept(world, importing, database) -> None:
    async with world() as w:
        keep_user(database, "usr_ann")
        for user, key in (("usr_gone", "key_gone"), ("usr_ann", "key_ann"), ("", "key_program")):
            called_by(database, user, key)
        await called(w, *((key, ids[0], address) for key, address, ids in BATCH))
        await importing(w).round()
        assert keys_with_addresses(database) == {"key_ann", "key_program"}
        assert rows(database) == [2, 2]


@pytest.mark.holds("people.md#export-and-erasure-2")
def test_addresses_that_move_before_the_lines_of_an_erased_user_leave_with_the_next_sweep(database) -> None:
    add_addresses(database, [AddressBatch(now(), BATCH)])
    assert keys_with_addresses(database) == {"key_gone", "key_ann", "key_program"}
    keep_user(database, "usr_ann")
    for user, key in (("usr_gone", "key_gone"), ("usr_ann", "key_ann"), ("", "key_program")):
        called_by(database, user, key)
    forget_late_addresses(database)
    assert keys_with_addresses(database) == {"key_ann", "key_program"}
    assert rows(database) == [2, 2]


@pytest.mark.holds("people.md#export-and-erasure-2", "security.md#the-console-6")
@pytest.mark.parametrize("days", [0, 1, 3, 20])
def test_addresses_of_an_erased_user_that_come_days_later_are_not_kept(database, days: int) -> None:
    """The importer was away."""
    keep_user(database, "usr_ann")
    for user, key in (("usr_gone", "key_gone"), ("usr_ann", "key_ann"), ("", "key_program")):
        called_by(database, user, key, days=days)
    at = now() - days * DAY
    add_addresses(database, [AddressBatch(at - DAY, [BATCH[0]]), AddressBatch(at, BATCH)])
    assert keys_with_addresses(database) == {"key_ann", "key_program"}
    assert rows(database) == [2, 2]


@pytest.mark.holds("people.md#export-and-erasure-2", "security.md#the-console-6")
async def test_addresses_leave_with_a_sweep_although_the_lines_of_the_erased_user_come_days_later(
    world, importing, database
) -> None:
    """All days are looked at by the first sweep of a process, and then once a day."""
    async with world() as w:
        add_addresses(database, [AddressBatch(now() - 20 * DAY, BATCH)])
        keep_user(database, "usr_ann")
        for user, key in (("usr_gone", "key_gone"), ("usr_ann", "key_ann"), ("", "key_program")):
            called_by(database, user, key, days=20)
        await importing(w, keep_addresses=MONTH).sweep()
        assert keys_with_addresses(database) == {"key_ann", "key_program"}
        assert rows(database) == [2, 2]

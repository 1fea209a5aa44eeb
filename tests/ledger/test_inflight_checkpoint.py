"""What a killed worker was serving is charged to the last chunk, once, and nobody else's call with it."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.errors import BalanceExhausted
from gateway.ledger import Hold, Journal, Ledger, checkpoint_record
from gateway.ledger import inflight_checkpoint as board_module
from gateway.ledger.api_key import ApiKey
from gateway.ledger.entry import Entry
from gateway.ledger.inflight_checkpoint import (
    ROOM,
    SLOT,
    SLOTS,
    InflightCheckpoint,
    Orphans,
    Slot,
    read_inflight_checkpoint,
)
from gateway.ledger.journal import read_entries
from gateway.ledger.recovery import TakenOver
from tests.delays import process_runs_for
from tests.ledger.records import settle, stream_of
from tests.quick import examples

PRICE = Price(version="v1", input=2_000_000, output=8_000_000, per_request=7, service_tier_multiplier={"fast": (3, 2)})
PROMPT = Usage(in_text=10, estimated=True)
KEY = ApiKey("acme", "key_x")


def stream(hold: Hold, *, service_tier: str | None = "fast", factor: float = 1.5) -> bytes:
    return stream_of(hold, PRICE, PROMPT, provider="p", service_tier=service_tier, factor=factor)


def put(checkpoint: InflightCheckpoint, request_id: str, *, model: str = "m", factor: float = 1.5) -> Slot:
    return checkpoint.put(request_id, stream(Hold(request_id, KEY, model, 0, None, 1), factor=factor))


def test_call_of_a_checkpoint_is_charged_like_a_stream_cut_there(tmp_path):
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    checkpoint.admit("acme", "r1", "key_x")
    place = put(checkpoint, "r1")
    for units in (4, 11, 40):
        place.delivered(units)
    (entry,) = read_inflight_checkpoint(tmp_path / "a.board").entries
    usage = Usage(in_text=10, out_text=15)  # 40 quarter tokens, times one and a half
    assert entry.amount == -PRICE.cost(usage, service_tier="fast") == -((20 + 120 + 7) * 3 // 2 + 1)
    assert (entry.account, entry.request_id, entry.key_id, entry.kind, entry.tokens, entry.at) == (
        "acme", "r1", "key_x", "use", 25, 1
    )  # fmt: skip
    meta = msgspec.json.decode(entry.meta)
    assert meta["usage"] == {"in_text": 10, "out_text": 15}
    assert (meta["estimated"], meta["outcome"]) == (True, "worker_died")
    assert (tmp_path / "a.board").stat().st_mode & 0o777 == 0o600


def test_call_that_delivered_nothing_is_recorded_with_its_account(tmp_path):
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    checkpoint.admit("acme", "r1", "key_x")
    checkpoint.admit("umbra", "r2", "key_y")
    checkpoint.admit("acme", "r3", "key_x")
    assert read_inflight_checkpoint(tmp_path / "a.board") == Orphans([], {"acme": ["r1", "r3"], "umbra": ["r2"]})


def test_writes_for_an_ended_call_do_not_change_another_slot(tmp_path):
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    old = put(checkpoint, "old")
    old.delivered(400)
    checkpoint.clear("old")
    assert read_inflight_checkpoint(tmp_path / "a.board") == Orphans()
    new = put(checkpoint, "new")
    new.delivered(4)
    old.delivered(4000)
    checkpoint.clear("old")
    (entry,) = read_inflight_checkpoint(tmp_path / "a.board").entries
    assert (entry.request_id, entry.tokens) == ("new", 10 + 2)


def test_state_of_a_slot_is_written_last_and_cleared_first():
    block, order = bytearray(SLOT), list[Any]()

    class Words(dict[int, int]):
        def __setitem__(self, word: int, value: int) -> None:
            order.append((word, bool(value), bytes(block[16:20])))

    place = Slot(block, cast("Any", Words()), state=0)
    place.write(b"body")
    assert order == [(1, False, b"body"), (0, True, b"body")]
    order.clear()
    place.vacate(Slot(block, cast("Any", Words()), state=0))
    assert order == [(0, False, b"body")]


def test_checkpoint_file_grows_and_its_slots_are_reused(tmp_path):
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    for generation in range(3):
        for n in range(2 * SLOTS):
            put(checkpoint, f"{generation}-{n}").delivered(4 * n)
        entries = read_inflight_checkpoint(tmp_path / "a.board").entries
        assert {entry.request_id for entry in entries} == {f"{generation}-{n}" for n in range(2 * SLOTS)}
        assert all(entry.tokens == 10 + -(-int(entry.request_id.split("-")[1]) * 3 // 2) for entry in entries)
        for entry in entries:
            checkpoint.clear(entry.request_id)
    assert (tmp_path / "a.board").stat().st_size == 3 * SLOTS * SLOT  # the first slot is the file's own


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-11")
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["admit", "put", "clear", "late"]), st.integers(0, 2)), min_size=20, max_size=60
    )
)
def test_checkpoint_file_has_the_running_calls_and_their_units_after_any_steps(tmp_path, steps):
    path = tmp_path / "model.board"
    path.unlink(missing_ok=True)
    checkpoint = InflightCheckpoint(path)
    checkpoint.admit("acme", "first", "key_x")
    expected: dict[str, int | None] = {"first": None}
    slots: list[tuple[str, Slot]] = []
    for number, (step, call) in enumerate(steps):
        name = f"r{call}"
        if step == "admit":
            checkpoint.admit("acme", name, "key_x")
            expected[name] = None
        elif step == "put":
            slots.append((name, put(checkpoint, name, factor=1.0)))
            expected[name] = 0
            latest = dict(slots)
        elif step == "clear":
            checkpoint.clear(name)
            expected.pop(name, None)
        elif slots:
            owner, slot = slots[call % len(slots)]  # perhaps of a call that has ended
            slot.delivered(4 * number)
            if latest[owner] is slot and expected.get(owner) is not None:
                expected[owner] = number
    left = read_inflight_checkpoint(path)
    found: dict[str, int | None] = {entry.request_id: entry.tokens - 10 for entry in left.entries}
    found.update(dict.fromkeys(left.others.get("acme", [])))
    assert found == expected
    checkpoint.close()


def test_torn_slots_are_skipped_and_the_rest_is_read(tmp_path, caplog):
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    for n in range(4):
        put(checkpoint, f"r{n}").delivered(4)
    content = bytearray((tmp_path / "a.board").read_bytes())
    whole = {entry.request_id for entry in read_inflight_checkpoint(tmp_path / "a.board").entries}
    at = content.index(b"r1")
    content[at] ^= 1  # a page that a crash of the machine left half old, half new
    start = content.index(b"r2") // SLOT * SLOT
    content[start : start + 8] = bytes(8)  # the state comes last: without it there is nothing yet
    (tmp_path / "a.board").write_bytes(content)
    assert {entry.request_id for entry in read_inflight_checkpoint(tmp_path / "a.board").entries} == whole - {
        "r1",
        "r2",
    }
    assert caplog.text.count("a call is unreadable") == 1
    for size in (0, 7, SLOT, start + SLOT // 2):
        (tmp_path / "a.board").write_bytes(content[:size])
        assert {entry.request_id for entry in read_inflight_checkpoint(tmp_path / "a.board").entries} <= whole - {
            "r1",
            "r2",
        }
    (tmp_path / "a.board").write_bytes(b"board 9\n" + content[8:])  # of another release
    assert read_inflight_checkpoint(tmp_path / "a.board") == Orphans()


@pytest.mark.parametrize("written", [0, 100])
def test_disk_error_does_not_stop_the_service(tmp_path, monkeypatch, caplog, written):
    monkeypatch.setattr(os, "pwrite", lambda *_: written)
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    for n in range(3):
        put(checkpoint, f"r{n}").delivered(8)
        checkpoint.clear(f"r{n}")
    assert caplog.text.count("the checkpoint file cannot grow") == 1


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-11")
def test_call_with_a_record_too_long_for_its_slot_is_recorded(tmp_path):
    checkpoint = InflightCheckpoint(tmp_path / "a.board")
    checkpoint.admit("acme", "r1", "key_x")
    put(checkpoint, "r1", model="m" * ROOM).delivered(8)
    assert read_inflight_checkpoint(tmp_path / "a.board") == Orphans([], {"acme": ["r1"]})


def test_call_that_is_put_again_keeps_its_units_and_its_slot_where_the_new_record_is_too_long(tmp_path):
    checkpoint, file = InflightCheckpoint(tmp_path / "a.board"), tmp_path / "a.board"
    put(checkpoint, "r1").delivered(4)
    checkpoint.put("r1", stream(Hold("r1", KEY, "other", 0, None, 1)), 8)
    (entry,) = read_inflight_checkpoint(file).entries
    assert (msgspec.json.decode(entry.meta)["model"], entry.tokens) == ("other", 13)
    put(checkpoint, "r1", model="m" * ROOM).delivered(20)
    (entry,) = read_inflight_checkpoint(file).entries
    assert (msgspec.json.decode(entry.meta)["model"], entry.tokens) == ("other", 18)
    checkpoint.clear("r1")
    assert read_inflight_checkpoint(file) == Orphans()


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-7")
def test_checkpoint_file_of_another_boot_gives_only_the_names_of_calls(tmp_path, monkeypatch):
    boot = tmp_path / "boot_id"
    monkeypatch.setattr(board_module, "BOOT", boot)
    boot.write_text("one")
    put(InflightCheckpoint(tmp_path / "a.board"), "r1").delivered(8)
    assert len(read_inflight_checkpoint(tmp_path / "a.board").entries) == 1
    boot.write_text("two")
    assert read_inflight_checkpoint(tmp_path / "a.board") == Orphans([], {"acme": ["r1"]})


def test_checkpoint_file_is_removed_at_exit_unless_it_has_calls(tmp_path):
    for request_id in ("", "r1"):
        checkpoint = InflightCheckpoint(tmp_path / "a.board")
        place = put(checkpoint, "r1")
        if not request_id:
            checkpoint.clear("r1")
        checkpoint.close()
        place.delivered(4)
        assert (tmp_path / "a.board").exists() == bool(request_id)


CHURN = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from gateway.ledger.inflight_checkpoint import InflightCheckpoint
from tests.ledger.test_inflight_checkpoint import put
checkpoint = InflightCheckpoint(Path(sys.argv[1]))
slot = put(checkpoint, "steady")
for n in itertools.count(1):
    slot.delivered(n * 0x010101010100)
    request_id = "r" * (n % 300) + str(n)
    checkpoint.admit("acme", request_id, "key_x")
    put(checkpoint, request_id)
    if n > 50:
        checkpoint.clear("r" * ((n - 50) % 300) + str(n - 50))
    if n == 60:
        print("running", flush=True)
"""


@pytest.mark.slow
def test_slots_and_numbers_are_complete_after_a_kill_at_any_moment(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(checkpoint_record, "tokens_of", lambda units, factor: units - PROMPT.in_text)
    root = str(Path(__file__).parents[2])
    for n in range(8):
        path = tmp_path / f"{n}.board"
        worker = subprocess.Popen([sys.executable, "-c", CHURN, str(path), root], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"running\n"
        process_runs_for(random.uniform(0.0, 0.05))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
        left = read_inflight_checkpoint(path)
        units = {entry.request_id: entry.tokens for entry in left.entries}
        assert units.pop("steady") % 0x010101010100 == 0
        assert set(units.values()) <= {0}
        assert len(units) + sum(map(len, left.others.values())) in {49, 50, 51, 52}
    assert not caplog.text


# In the ledger -------------------------------------------------------------------------------------------------------


async def test_settlement_is_journaled_before_its_call_leaves_the_checkpoint_file(world, tmp_path, monkeypatch):
    async with world() as w:
        journal = Journal(tmp_path)
        ledger = Ledger(w.store, {}, journal=journal)
        hold = await ledger.admit(*w.ask(await w.caller()))
        (path,) = tmp_path.glob("*.board")
        assert read_inflight_checkpoint(path) == Orphans([], {"acme": [hold.request_id]})
        journaled: list[str] = []
        clear = journal.checkpoint.clear

        def look(request_id: str) -> None:
            (segment,) = tmp_path.glob("*.jsonl")
            journaled.extend(entry.request_id for entry in read_entries(segment))
            clear(request_id)

        monkeypatch.setattr(journal.checkpoint, "clear", look)
        await settle(ledger, hold, 5)
        assert journaled == [hold.request_id]
        assert read_inflight_checkpoint(path) == Orphans()
        journal.close()
        assert list(tmp_path.glob("*.board")) == []


async def test_call_without_a_journaled_settlement_stays_in_the_checkpoint_file_until_it_is_stored(
    world, tmp_path, monkeypatch
):
    async with world() as w:
        journal = Journal(tmp_path)
        ledger = Ledger(w.store, {}, journal=journal)
        hold = await ledger.admit(*w.ask(await w.caller()))
        (path,) = tmp_path.glob("*.board")

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("gateway.ledger.journal.os.write", full)
        seen = []
        append = journal.append

        def look(entries):
            segment = append(entries)
            seen.append(read_inflight_checkpoint(path).others)
            return segment

        monkeypatch.setattr(journal, "append", look)
        await settle(ledger, hold, 5)
        assert seen == [{"acme": [hold.request_id]}]
        assert read_inflight_checkpoint(path) == Orphans()
        journal.close()


async def test_refused_call_is_not_in_the_checkpoint_file(world, tmp_path):
    async with world() as w:
        journal = Journal(tmp_path)
        ledger = Ledger(w.store, {}, journal=journal)
        with pytest.raises(BalanceExhausted):
            await ledger.admit(*w.ask(await w.caller(balance=1), 1000))
        (path,) = tmp_path.glob("*.board")
        assert read_inflight_checkpoint(path) == Orphans()
        journal.close()


DYING = """
import sys
from pathlib import Path
import msgspec
from gateway.ledger import Journal
from gateway.ledger.entry import Entry
journal = Journal(Path(sys.argv[1]))
admitted, streams, settled = msgspec.json.decode(
    sys.argv[2], type=tuple[list[tuple[str, str, str]], dict[str, bytes], Entry]
)
journal.append([settled])
for names in admitted:
    journal.checkpoint.admit(*names)
for request_id, body in streams.items():
    journal.checkpoint.put(request_id, body).delivered(40)
print("written", flush=True)
sys.stdin.read()
"""


async def test_checkpoint_file_of_a_killed_worker_is_taken_over_once_after_its_journal(world, tmp_path):
    async with world() as w:
        journal = Journal(tmp_path)
        ledger = Ledger(w.store, {}, journal=journal)
        assert ledger.recovery is not None
        key = await w.caller(balance=1_000_000)
        streamed, silent, checked, settled = [await w.admit(key, 10_000, request_id=f"r{n}") for n in range(4)]
        checked.used = 333
        await w.ledger.renew_leases([checked])
        cost = PRICE.cost(Usage(in_text=10, out_text=15))
        entry = Entry("acme", settled.request_id, key.id, "use", -5000, 9, settled.admitted_at, f'{{"key":"{key.id}"}}')
        admitted = [("acme", name, key.id) for name in (silent.request_id, checked.request_id, "never-admitted")]
        streams = {hold.request_id: stream(hold, service_tier=None) for hold in (streamed, settled)}
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DYING, str(tmp_path), msgspec.json.encode((admitted, streams, entry)).decode(),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert worker.stdout is not None
        assert await asyncio.wait_for(worker.stdout.readline(), 60) == b"written\n"
        assert await ledger.recovery.take_over() == TakenOver()  # it lives
        assert (await w.accounts.show("acme")).held == 40_000
        worker.kill()
        await worker.wait()
        # As if the heir had been killed before it could remove anything.
        (checkpoint,), (segment,) = tmp_path.glob("*.board"), tmp_path.glob("*.jsonl")
        (lock,) = [path for path in tmp_path.glob("*.lock") if path.stem == checkpoint.stem]
        copies = {path: path.read_bytes() for path in (checkpoint, segment, lock)}
        for _ in range(2):
            assert await ledger.recovery.take_over() == TakenOver(settlements=1, calls=4)
            assert [path for path in copies if path.exists()] == []
            account = await w.accounts.show("acme")
            assert (account.held, account.balance) == (0, 1_000_000 - 5000 - 333 - cost)
            lines = {line.request_id: (line.kind, -line.amount) async for line in w.ledger.lines("acme")}
            assert lines[streamed.request_id] == ("use", cost)
            assert lines[silent.request_id] == ("reclaim", 0)
            assert lines[checked.request_id] == ("reclaim", 333)
            assert lines[settled.request_id] == ("use", 5000)
            await w.proved()
            for path, content in copies.items():
                path.write_bytes(content)
        assert await ledger.recovery.take_over() == TakenOver(settlements=1, calls=4)
        assert await ledger.recovery.take_over() == TakenOver()
        journal.close()


async def test_call_charged_at_its_checkpoint_pays_the_difference_when_the_checkpoint_file_is_found(world, tmp_path):
    async with world() as w:
        dead, journal = Journal(tmp_path), Journal(tmp_path)
        ledger = Ledger(w.store, {}, journal=journal)
        assert ledger.recovery is not None
        hold = await w.admit(await w.caller(balance=10_000), 5000)
        hold.used = 100
        await w.ledger.renew_leases([hold])
        await w.expire(hold)
        await w.ledger.reclaim()  # the store had been away for longer than the lease
        dead.checkpoint.put(hold.request_id, stream(hold)).delivered(40)
        dead.close()
        assert await ledger.recovery.take_over() == TakenOver(calls=1)
        cost = PRICE.cost(Usage(in_text=10, out_text=15), service_tier="fast")
        assert (await w.accounts.show("acme")).balance == 10_000 - cost
        await w.proved()
        journal.close()

"""The commands of admissions and settlements are written out by hand: byte for byte what the Redis client packs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConcurrencyLimited, StoreUnavailable
from gateway.ledger import GroupLimits
from gateway.ledger.admission import Admission
from gateway.ledger.api_key import ApiKey
from gateway.ledger.entry import Entry
from gateway.ledger.inflight_checkpoint import InflightCheckpoint
from gateway.ledger.limits import GroupTable
from gateway.ledger.script_batcher import Batch, Tick
from gateway.ledger.settlement_writer import SettlementWriter, Waiting
from gateway.store.command import Script, pack
from gateway.store.connection import ReplyTo
from tests.ledger.records import quote_of
from tests.polling import until

SCRIPT = Script("return 1")
NAMES = st.text(max_size=40) | st.sampled_from(["m" * 1024, "m" * 1025, "é" * 1024, "m\r\n$1\r\nx"])


class Sent:
    """A link that keeps the commands."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    @property
    def links(self) -> list[Any]:
        return [self]

    def link(self, slot_key: str) -> Any:
        return self

    def put(self, command: bytes, reply: ReplyTo) -> None:
        self.commands.append(command)

    def flush(self) -> None:
        """Everything was sent."""


async def no_search(account: str, admitted: Mapping[str, int]) -> dict[str, bool | None]:
    raise AssertionError("nothing is old")


def packed(account: str, arguments: Any) -> bytes:
    return pack(("EVALSHA", SCRIPT.sha1, 1, f"{{a:{account}}}", *arguments))


@given(
    st.text(max_size=20) | st.just("a" * 1025),
    st.lists(st.tuples(NAMES, NAMES, NAMES, st.integers(0, 10**16), st.integers(0, 10**9)), min_size=1, max_size=3),
    st.sampled_from([GroupLimits(), GroupLimits(rpm=10, tpm=9_000_000, concurrency=3)]),
    st.booleans(),
    st.sampled_from(["", "chat|", "|10.0.0.0/8,::1/128"]),
)
def test_admission_command_is_the_packed_list_of_its_arguments(
    account: str, calls: list[tuple[str, str, str, int, int]], limits: GroupLimits, enabled: bool, scopes: str
) -> None:
    sent = Sent()
    groups = {"default": limits}
    admission = Admission(
        sent,
        SCRIPT,
        tick=Tick(),
        groups=GroupTable(groups),
        orphaned=lambda _: None,
        checkpoint=InflightCheckpoint(None),
    )
    quotes = [
        quote_of(hold, tokens, model=model, groups=frozenset({"default"} if enabled else ()), version=model)
        for _, _, model, hold, tokens in calls
    ]
    items: Any = [
        (call[0], ApiKey(account, call[1], scopes=scopes), quote, None)
        for call, quote in zip(calls, quotes, strict=True)
    ]
    batch = Batch(account, items, admission._batches)
    admission._batches.send(batch)
    assert sent.commands == [packed(account, admission._arguments(batch))]


@given(
    st.text(max_size=20) | st.just("a" * 1025),
    st.lists(
        st.builds(
            Entry,
            account=st.just(""),
            request_id=NAMES,
            key_id=NAMES,
            kind=st.sampled_from(["use", "void"]),
            amount=st.integers(-(10**16), 0),
            tokens=st.integers(0, 10**9),
            at=st.integers(0, 10**16),
            meta=NAMES,
            force=st.integers(0, 1),
            hold=st.integers(0, 10**16),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_settlement_command_is_the_packed_list_of_its_arguments(account: str, entries: list[Entry]) -> None:
    sent = Sent()
    writer = SettlementWriter(sent, SCRIPT, tick=Tick(), search=no_search)
    writer._batches.send(Batch(account, [Waiting(entry) for entry in entries], writer._batches))
    arguments = [
        argument
        for e in entries
        for argument in (e.request_id, e.key_id, e.kind, e.amount, e.tokens, e.at, e.force, e.meta, e.hold)
    ]
    assert sent.commands == [packed(account, arguments)]


async def test_connection_serves_other_calls_after_an_invalid_reply(world, caplog):
    async with world() as w:
        key = await w.caller()
        await w.admit(key)

        def broken(batch: Any, reply: Any) -> None:
            raise IndexError("a bug")

        w.ledger._admission._batches.on_answer = broken
        lost = w.ledger.admit(*w.ask(key))
        name = f"{{a:{key.account}}}"
        assert await asyncio.wait_for(w.store.link(name).call("EXISTS", name), 30) == 1
        assert "could not be used" in caplog.text
        with pytest.raises(StoreUnavailable):
            await lost


async def test_refused_and_lost_calls_leave_nothing_in_the_checkpoint(world, tmp_path):
    async with world(default=GroupLimits(concurrency=1)) as w:
        key = await w.caller()
        checkpoint = InflightCheckpoint(tmp_path / "checkpoint")
        w.ledger._admission._checkpoint = checkpoint
        first = await w.ledger.admit(*w.ask(key))
        with pytest.raises(ConcurrencyLimited):
            await w.ledger.admit(*w.ask(key))
        w.store.link(f"{{a:{key.account}}}").disconnect("a test")
        waiting = w.ledger.admit(*w.ask(key))
        with pytest.raises((StoreUnavailable, ConcurrencyLimited)):
            await waiting
        assert list(checkpoint._slots) == [first.request_id]


async def test_error_of_one_batch_does_not_stop_the_others_of_its_tick(caplog):
    sent: list[str] = []

    class Batches:
        def __init__(self, name: str) -> None:
            self.name = name

        def send_all(self, links: set[Any]) -> None:
            if self.name == "broken":
                raise ValueError("a bug")
            sent.append(self.name)

    tick = Tick()
    for name in ("first", "broken", "last"):
        tick.add(Batches(name))  # type: ignore[arg-type]
    await until(lambda: len(sent) == 2)
    assert sent == ["first", "last"]
    assert "a bug" in caplog.text

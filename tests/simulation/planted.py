"""Promises broken on purpose, each in one line of a script or one function; a schedule must find every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from gateway.inference.idempotency import Claim
from gateway.ledger.inflight_checkpoint import InflightCheckpoint
from gateway.ledger.journal import NOWHERE, Journal
from gateway.ledger.recovery import Recovery, TakenOver
from tests.money.faults import books_twice, charges_failures, forgets_callers_who_left, lua
from tests.simulation.planted_edges import PLANTED_EDGES

Plant = Callable[[pytest.MonkeyPatch], None]


def writes_no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settlements go to the store alone, as with a full disk."""
    monkeypatch.setattr(Journal, "append", lambda *_: NOWHERE)


def takes_nothing_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of dead workers stay where they are."""

    async def nothing(_: Recovery) -> TakenOver:
        return TakenOver()

    monkeypatch.setattr(Recovery, "take_over", nothing)


def trusts_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server before has confirmed is not sent again to the next one."""
    monkeypatch.setattr(Recovery, "reconnected", lambda *_: None)


def notes_no_running_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps nothing about its running calls."""
    monkeypatch.setattr(InflightCheckpoint, "_write", lambda self, *_: self._waste)


def keeps_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call with an Idempotency-Key is forgotten when it has ended."""
    monkeypatch.setattr(Claim, "complete", lambda self, *_, **__: self.close({}, charged=False))


PLANTED: Mapping[str, Plant] = {
    "a settled call has no marker": lua("settle", "try('SET', marks[i], done[rid], 'PX', MARKER_MS)", "do end"),
    "a reclaimed call has no marker": lua("reclaim", "mark(A, rid, 'reclaim', amount, id)", "do end"),
    "a lost hold is not charged": lua(
        "settle", "code, line = LATE, charged\n", "code, charged, line, done[rid] = DUP, '0', nil, 'void 0'\n"
    ),
    "a reclaimed call is not corrected": lua(
        "settle", "if was == 'reclaim' and kind == 'use' then", "if false then"
    ),
    "a reclaim charges the whole hold": lua(
        "reclaim", "local owed, amount = tonumber(hold.used), tonumber(hold.amount)",
        "local owed, amount = tonumber(hold.amount), tonumber(hold.amount)",
    ),
    "a hold is released twice": lua(
        "settle", "add(freed, 'held', A, 0 - hold)\n", "add(freed, 'held', A, 0 - 2 * hold)\n"
    ),
    "a hold stays after its settlement": lua(
        "settle", "try('HDEL', A .. ':rv', unpack(gone))", "do end"
    ),
    "a line has the balance before it": lua("settle", "'bal', after, 'meta'", "'bal', bal, 'meta'"),
    "a hold that is asked for again counts again": lua(
        "admit", "if holds[i] then\n", "if false then\n"
    ),
    "a top-up counts each time": lua(
        "credit", "redis.call('HSET', A .. ':op', operation, kind .. ' ' .. amount)", "do end"
    ),
    "a revoked key is admitted": lua("admit", "if not key.valid then return KEY", "if false then return KEY"),
    "settlements have no journal": writes_no_journal,
    "nobody takes over what the dead leave": takes_nothing_over,
    "confirmed settlements are not sent to another server": trusts_another_server,
    "running calls are not noted": notes_no_running_call,
    "answers are not kept": keeps_no_answer,
    "a call is settled under two ids": books_twice,
    "failed calls are charged": charges_failures,
    "callers who left are forgotten": forgets_callers_who_left,
    **PLANTED_EDGES,
}  # fmt: skip

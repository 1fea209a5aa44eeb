"""Faults planted in the history, and in what callers get over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.history import forks, importer, rollups, trimming
from gateway.history.new_lines import Blocked
from gateway.history.rollups import Rollup
from gateway.history.sweep import Sweep, SweepFindings
from gateway.inference.sinks import EventSink
from gateway.ledger import scripts
from tests.money.faults import lua

Plant = Callable[[pytest.MonkeyPatch], None]


def resolves_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that the store has lost stay in the database."""

    async def nothing(*_: object) -> int:
        raise Blocked("no fork is resolved")

    monkeypatch.setattr(importer, "resolve_fork", nothing)


def keeps_superseded_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of usage keep lines that the store has lost."""

    class Kept(Rollup):
        def write(self, connection: Any, *, sign: int = 1) -> None:
            """Nothing."""

    monkeypatch.setattr(forks, "Rollup", Kept)


def sums_no_amendments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums of usage have the calls alone, without refunds and corrections."""
    monkeypatch.setattr(rollups, "costs_usage", lambda line, _: line.kind in ("use", "reclaim"))


def compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep finds no difference: only hints lead to an import."""

    async def nothing(*_: object) -> SweepFindings:
        return SweepFindings()

    monkeypatch.setattr(Sweep, "_compare", nothing)


def ends_cut_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that failed ends as a whole one does."""
    monkeypatch.setattr(EventSink, "fail", lambda self, _: self.finish(b"data: [DONE]\n\n"))


def trim(before: str, after: str) -> Plant:
    """Replace a part of the script that removes lines."""
    plant = lua("trim", before, after)

    def planted(monkeypatch: pytest.MonkeyPatch) -> None:
        plant(monkeypatch)
        monkeypatch.setattr(trimming, "load_script", scripts.load_script)

    return planted


PLANTED_EDGES: Mapping[str, Plant] = {
    "lines that the store has lost stay in the history": resolves_no_fork,
    "sums keep lines that the store has lost": keeps_superseded_sums,
    "sums leave refunds out": sums_no_amendments,
    "the database is not compared": compares_nothing,
    "a cut stream looks whole": ends_cut_streams,
    "lines leave the store before they are imported": trim(
        "'MINID', ms .. '-' .. string.format('%.0f', tonumber(step) + 1))", "'MINID', '9999999999999-0')"
    ),
    "lines that leave the store lose their sums": trim(
        "redis.call('HSET', A .. ':ca', 'n', n, 'bal', bal,", "redis.call('HSET', A .. ':ca', 'n', n, 'bal', 0,"
    ),
}

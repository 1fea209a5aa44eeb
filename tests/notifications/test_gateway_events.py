"""Circuits, refused settlements and a late importer are events for the operator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile
from gateway.notifications import gateway_watch, notifier
from gateway.notifications.gateway_watch import GatewayWatch, RefusedWatch
from gateway.routing.circuit_sync import HASH, CircuitEvent
from tests.notifications.conftest import Notifying


class Watching:
    """The watch of one machine."""

    def __init__(self, n: Notifying, folder: Path, machine: str = "m1") -> None:
        self.n = n
        self.lag: float | None = 0.0
        self.refused = RefusedWatch(folder, n.metrics)
        self.watch = GatewayWatch(
            n.world.store, n.queue, n.notifier, self.refused, lag=lambda: self.lag, most_lag=600.0, machine=machine
        )

    async def look(self) -> list[tuple[str, dict[str, Any]]]:
        await self.refused.look()
        await self.watch.step()
        return await self.n.events()


async def circuit(n: Notifying, cause: str, *, machine: str = "", model: str = "gpt") -> str:
    """What a worker stores when a circuit opens; returns the field."""
    event = CircuitEvent("w1", "openai", 0, model, cause, 30.0, time.time(), "chat", machine)
    await n.world.store.client.hset(HASH, event.field, msgspec.json.encode(event))
    return event.field


@pytest.mark.holds("notifications.md#events-2", "notifications.md#events-7")
async def test_open_circuit_is_one_event_over_all_machines_until_it_was_closed_for_a_time(
    notifying, tmp_path, monkeypatch
) -> None:
    async with notifying() as n:
        one, other = Watching(n, tmp_path), Watching(n, tmp_path / "b", "m2")
        fields = [await circuit(n, "failures", machine=machine) for machine in ("m1", "m2")]
        shown = {"provider": "openai", "credential": 1, "model": "gpt", "cause": "failures"}
        assert await one.look() == await other.look() == [("circuit.opened", shown)]
        await n.world.store.client.hdel(HASH, *fields)
        await one.look()
        await circuit(n, "failures")
        assert len(await one.look()) == 1, "it opens and closes"
        monkeypatch.setitem(notifier.RESTS, "circuit.opened", 0.0)
        await n.world.store.client.delete(HASH)
        await one.look()
        await circuit(n, "failures")
        assert len(await one.look()) == 2


@pytest.mark.holds("notifications.md#events-7")
async def test_refused_credential_is_an_event_and_a_slow_down_is_none(notifying, tmp_path) -> None:
    async with notifying() as n:
        watching = Watching(n, tmp_path)
        await circuit(n, "limited")
        assert await watching.look() == []
        await circuit(n, "credential", model="")
        shown = {"provider": "openai", "credential": 1, "cause": "credential"}
        assert await watching.look() == [("credential.refused", shown)]


def entry(number: int) -> Entry:
    return Entry("acme", f"req_{number}", "k", "use", -1_500_000_000, 0, 0, "")


async def test_settlements_that_are_set_aside_are_events_and_a_metric(notifying, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(gateway_watch, "MORE_EVERY", 0.0)
    async with notifying() as n:
        file, watching = RefusedFile(tmp_path), Watching(n, tmp_path)
        assert await watching.look() == []
        file.add(entry(1))
        file.add(entry(2))
        [(type_, data)] = await watching.look()
        assert (type_, data["settlements"], data["amount"]) == ("settlement.set_aside", 2, "3")
        assert n.metrics._gauges["gateway_refused_settlements", ()] == 2
        assert len(await Watching(n, tmp_path).look()) == 1, "a restart is no event"
        file.give_back(file.take()[:1])
        assert len(await watching.look()) == 1
        file.add(entry(3))
        assert [data["settlements"] for _, data in await watching.look()] == [2, 2]
        file.give_back(file.take()[:0])
        await watching.look()
        assert n.metrics._gauges["gateway_refused_settlements", ()] == 0
        file.add(entry(4))
        assert len(await watching.look()) == 3


@pytest.mark.holds("notifications.md#events-8")
async def test_many_refused_settlements_are_few_events(notifying, tmp_path) -> None:
    async with notifying() as n:
        file, watching = RefusedFile(tmp_path), Watching(n, tmp_path)
        for number in range(10):
            file.add(entry(number))
            found = await watching.look()
        assert len(found) == 1
        assert n.metrics._gauges["gateway_refused_settlements", ()] == 10


@pytest.mark.parametrize("lags", [(0, 599, 600, 5000, 301, 700), (0, 601, None, 601)])
async def test_late_importer_is_one_event(notifying, tmp_path, lags: tuple[float | None, ...]) -> None:
    async with notifying() as n:
        watching = Watching(n, tmp_path)
        for watching.lag in lags:
            found = await watching.look()
        [(type_, data)] = found
        assert type_ == "importer.behind"
        assert data["seconds"] >= 600

"""What is known of every place: by one worker, by all of them through the store, and across a reload."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway.errors import UpstreamUnreachable
from gateway.metrics import Metrics, Totals
from gateway.routing.circuit_breaker import Circuit, CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.circuit_sync import CHANNEL, HASH, CircuitEvent, CircuitSync, read_circuit_events
from gateway.store import Store
from tests.polling import until


class Worker:
    """One worker's view."""

    def __init__(self, store: Store) -> None:
        self.metrics = Metrics()
        self.health = CircuitRegistry(self.metrics)
        self.sharing = CircuitSync(self.health, store, machine="one")
        self.target = self.health.circuit("p", 0, "m")

    def exposition(self) -> str:
        totals = Totals()
        delta = self.metrics.drain()
        if delta is not None:
            totals.merge(delta, source="w")
        return totals.text()[0].decode()


@pytest.fixture
def workers(io_loop: IOLoop, store: Store) -> Iterator[list[Worker]]:
    """Two of them on one store, listening."""
    workers = [Worker(store), Worker(store)]

    async def start() -> None:
        for worker in workers:
            worker.sharing.start()
        await until(lambda: all(worker.sharing.listening for worker in workers))

    async def stop() -> None:
        for worker in workers:
            await worker.sharing.close()

    io_loop.run_sync(start)
    yield workers
    io_loop.run_sync(stop)


async def test_circuit_events_are_published_once_and_not_repeated(store: Store, workers: list[Worker]) -> None:
    apply_remote: list[bytes] = []
    async with store.channel(CHANNEL) as channel:
        assert await channel.message(within=20.0)  # that it listens
        one, other = workers
        one.target.open("failures", time.monotonic(), 30.0)
        await until(lambda: other.target.cause == "failures")
        one.target.until = time.monotonic()
        one.target.succeeded(time.monotonic(), 0.0)
        await until(lambda: other.target.cause is None)
        for _ in range(6):
            message = await channel.message(within=0.1)
            apply_remote += [message["data"]] if message else []
    assert [msgspec.json.decode(text).get("cause", "") for text in apply_remote] == ["failures", ""]
    assert await read_circuit_events(store) == []


@pytest.mark.parametrize("garbage", [b"garbage", b'{"worker":1}', b'{"worker":"x","provider":"p","cause":"newer"}'])
async def test_unknown_circuit_events_do_not_end_the_subscription(
    store: Store, workers: list[Worker], garbage: bytes
) -> None:
    one, other = workers
    one.target.open("failures", time.monotonic(), 30.0)
    await until(lambda: other.target.cause == "failures")
    await store.client.hset(HASH, "p#0/m", garbage)
    await store.client.publish(CHANNEL, garbage)
    assert all(on_event.worker != "" for on_event in await read_circuit_events(store))
    one.health.circuit("p", 0, "n").open("failures", time.monotonic(), 30.0)
    found = other.health.circuit("p", 0, "n")
    one.health.circuit("p", 0, "n").open("limited", time.monotonic(), 60.0)
    await until(lambda: found.cause == "limited")
    assert other.target.cause == "failures", "a word that nobody knows is not good news"


async def test_circuit_event_of_a_newer_release_does_not_close_a_circuit(workers: list[Worker]) -> None:
    worker = workers[0]
    worker.target.open("failures", time.monotonic(), 30.0)
    worker.health.apply_remote(worker.target.key, "of another release", 30.0)
    assert worker.target.cause == "failures"


def test_clock_that_is_ahead_does_not_lengthen_a_shared_circuit_state() -> None:
    on_event = CircuitEvent("w", "p", seconds=5.0, at=1000.0, cause="limited")
    assert on_event.left(1001.0) == 4.0
    assert on_event.left(400.0) == 5.0


async def test_shared_circuit_state_expires_in_the_store(store: Store, workers: list[Worker]) -> None:
    workers[0].target.open("failures", time.monotonic(), 30.0)
    await until(lambda: store.client.exists(HASH))
    assert 300 < await store.client.ttl(HASH) <= 3600


async def test_a_call_that_ends_after_its_target_was_removed_leaves_no_open_circuit(workers: list[Worker]) -> None:
    worker = workers[0]
    gone = worker.target
    worker.health.keep([CircuitKey("p", 0, "other")])
    gone.open("failures", time.monotonic(), 30.0)
    assert worker.health.all_closed
    assert 'gateway_targets_open{cause="failures"' not in worker.exposition()


async def test_a_reload_that_removes_an_open_target_removes_it_from_the_gauge(workers: list[Worker]) -> None:
    worker: Any = workers[0]
    worker.target.open("failures", time.monotonic(), 30.0)
    assert not worker.health.all_closed
    worker.health.keep([CircuitKey("p", 0, "other")])
    assert worker.health.all_closed
    assert 'gateway_targets_open{cause="failures",credential="1",model="m",provider="p"} 0.0' in worker.exposition()
    assert CircuitKey("p", 0, "m") not in {circuit.key for circuit in worker.health.all()}


async def test_a_probe_that_fails_on_another_worker_doubles_the_local_open_time(workers: list[Worker]) -> None:
    worker = workers[0]
    circuit: Circuit = worker.target
    worker.health.apply_remote(circuit.key, "failures", 60.0)
    circuit.until = now = time.monotonic()
    circuit.enter(now)
    circuit.failed(UpstreamUnreachable(), now)
    assert circuit.until - now == pytest.approx(120, abs=5)


@pytest.mark.holds("routing.md#credentials-1")
def test_credentials_count_from_1_where_they_are_shown_and_from_0_in_the_store() -> None:
    key = CircuitKey("p", 0, "m", "chat")
    assert (str(key), str(CircuitKey("p", 1)), str(CircuitKey("p"))) == ("p#1/m (chat)", "p#2", "p")
    event = CircuitEvent("w", "p", 0, "m", "failures", capability="chat", machine="here")
    assert event.field == "p#0/m (chat)@here", "a release before finds it"

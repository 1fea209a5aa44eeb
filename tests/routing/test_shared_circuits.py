"""Machines share what an upstream said of a credential; a machine's own failures stay on that machine."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway.errors import (
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamUnreachable,
)
from gateway.http_client.proxied_errors import refused
from gateway.metrics import Metrics
from gateway.routing import circuit_sync
from gateway.routing.circuit_breaker import Circuit, CircuitKey
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.circuit_sync import (
    CHANNEL,
    EXPIRES_AFTER,
    HASH,
    CircuitEvent,
    CircuitSync,
    read_circuit_events,
    request_probe,
)
from gateway.store import Store
from tests.polling import until

DELIVERED = "delivered"  # a target whose circuit opens after all others, so that their events have arrived


class Worker:
    """One worker of one machine."""

    def __init__(self, store: Store, machine: str) -> None:
        self.health = CircuitRegistry(Metrics())
        self.sync = CircuitSync(self.health, store, machine=machine)
        self.target = self.health.circuit("p", 0, "m", "chat")
        self.last = self.health.circuit("p", 0, DELIVERED, "chat")

    def fail(self, error: GatewayError, circuit: Circuit | None = None) -> None:
        for _ in range(5):
            (circuit or self.target).failed(error, time.monotonic())


@pytest.fixture
def workers(io_loop: IOLoop, store: Store) -> Iterator[list[Worker]]:
    """Two of one machine and one of another, listening."""
    workers = [Worker(store, machine) for machine in ("here", "here", "there")]

    async def start() -> None:
        for worker in workers:
            worker.sync.start()
        await until(lambda: all(worker.sync.listening for worker in workers))

    async def stop() -> None:
        for worker in workers:
            await worker.sync.close()

    io_loop.run_sync(start)
    yield workers
    io_loop.run_sync(stop)


async def all_delivered(sender: Worker, *others: Worker) -> None:
    """Every event that `sender` has sent has arrived."""
    sender.last.open("limited", time.monotonic(), 60.0)
    await until(lambda: all(worker.last.cause == "limited" for worker in others))


@pytest.mark.holds("routing.md#health-3")
async def test_failures_close_a_target_on_the_same_machine_only(workers: list[Worker]) -> None:
    one, sibling, elsewhere = workers
    one.fail(UpstreamUnreachable())
    await all_delivered(one, sibling, elsewhere)
    assert (sibling.target.cause, elsewhere.target.cause) == ("failures", None)


@pytest.mark.holds("routing.md#health-4")
async def test_requested_probe_lets_the_next_call_of_each_worker_try_an_open_target(
    workers: list[Worker], store: Store
) -> None:
    one, sibling, elsewhere = workers
    one.fail(UpstreamUnreachable())
    await all_delivered(one, sibling, elsewhere)
    elsewhere.fail(UpstreamUnreachable())
    targets = {CircuitKey("p", 0, "m")}

    async def both_known() -> bool:
        return len(await read_circuit_events(store)) == 3  # one of each machine, and `last`

    await until(both_known)
    assert not any(worker.target.ready(time.monotonic()) for worker in workers)
    assert [event.cause for event in await request_probe(store, targets)] == ["failures", "failures"]
    await until(lambda: all(worker.target.ready(time.monotonic()) for worker in workers))
    assert not one.last.ready(time.monotonic())  # another target
    assert await request_probe(store, targets) == []
    one.fail(UpstreamUnreachable())  # the probe: once is enough, and it is left out for longer
    assert one.target.until > time.monotonic() + 50.0
    sibling.target.succeeded(time.monotonic(), 0.0)
    await until(lambda: one.target.cause is None)
    assert await request_probe(store, targets) == []


async def test_requested_probe_does_not_open_a_circuit_that_has_closed_meanwhile(
    workers: list[Worker], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = CircuitEvent("gone", "p", 0, "m", "failures", 30.0, time.time(), "chat", "here")

    async def read_before(store: Store) -> list[CircuitEvent]:
        return [event]

    monkeypatch.setattr(circuit_sync, "read_circuit_events", read_before)
    assert await request_probe(store, {CircuitKey("p", 0, "m")}) == []
    assert await store.client.hgetall(HASH) == {}


async def test_failures_of_one_worker_do_not_close_a_target_that_has_just_answered_its_sibling(
    workers: list[Worker],
) -> None:
    """Each worker knows its own callers only: the failures may all be one caller's."""
    one, sibling, _ = workers
    sibling.target.succeeded(time.monotonic(), 0.1, "other")
    one.fail(UpstreamUnreachable())
    await all_delivered(one, sibling)
    assert (one.target.cause, sibling.target.cause) == ("failures", None)


async def test_a_machine_that_starts_does_not_take_over_the_failures_of_another(
    workers: list[Worker], store: Store
) -> None:
    workers[0].fail(UpstreamUnreachable())

    async def stored() -> bool:
        return bool(await read_circuit_events(store))

    await until(stored)
    async with late(store, "there") as elsewhere, late(store, "here") as sibling:
        assert (sibling.target.cause, elsewhere.target.cause) == ("failures", None)


async def test_a_worker_that_starts_removes_what_machines_that_are_gone_have_left(
    workers: list[Worker], store: Store
) -> None:
    left = CircuitEvent("gone", "p", 0, "m", "failures", 30.0, time.time() - EXPIRES_AFTER - 60.0, "chat", "elsewhere")
    fresh = CircuitEvent("here", "p", 0, "n", "failures", 30.0, time.time(), "chat", "there")
    for event in (left, fresh):
        await store.client.hset(HASH, event.field, msgspec.json.encode(event))
    async with late(store, "there"):
        assert await read_circuit_events(store) == [fresh]


# A worker that ends ---------------------------------------------------------------------------------------------------


async def test_a_worker_that_starts_keeps_what_is_reported_again_while_it_removes_old_reports(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = CircuitEvent("gone", "p", 0, "m", "failures", 30.0, time.time() - EXPIRES_AFTER - 60.0, "chat", "elsewhere")
    text = msgspec.json.encode(old)
    again = text.replace(b"gone", b"here")
    await store.client.hset(HASH, old.field, text)
    read = circuit_sync._read_shared

    async def read_before_another_report(store: Store) -> Any:
        shared = await read(store)
        await store.client.hset(HASH, old.field, again)
        return shared

    monkeypatch.setattr(circuit_sync, "_read_shared", read_before_another_report)
    worker = Worker(store, "here")
    worker.sync.start()
    await until(lambda: worker.sync.listening)
    await worker.sync.close()
    assert await store.client.hget(HASH, old.field) == again


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_sync, "LEASE", 2.0)
    monkeypatch.setattr(circuit_sync, "RENEW_EVERY", 0.3)


def kill(worker: Worker) -> None:
    """End the worker as SIGKILL does: it says nothing more."""
    worker.health.on_event = None
    for task in worker.sync._tasks:
        task.cancel()


async def open_models(store: Store) -> set[str]:
    return {event.key.model for event in await read_circuit_events(store)}


@pytest.mark.holds("routing.md#health-5")
async def test_what_a_killed_worker_reported_ends_with_its_lease_and_that_of_others_stays(
    short_leases: None, workers: list[Worker], store: Store
) -> None:
    elsewhere = workers[2]
    async with late(store, "here") as killed:
        killed.fail(UpstreamUnreachable(), killed.health.circuit("p", 0, "of the killed", "chat"))
        elsewhere.fail(UpstreamUnreachable(), elsewhere.health.circuit("p", 0, "of another", "chat"))

        async def both() -> bool:
            return await open_models(store) == {"of the killed", "of another"}

        await until(both)
        kill(killed)
        assert await both(), "the lease has not ended"

        async def ended() -> bool:
            return await open_models(store) == {"of another"}

        await until(ended)
        killed.sync._reported.clear()
    async with late(store, "here") as started:
        assert started.health.circuit("p", 0, "of the killed", "chat").cause is None
    assert {name.decode() for name in await store.client.hkeys(HASH)} == {
        "p#0/of another (chat)@there",
        f"lease:{elsewhere.sync._me}",
    }


@pytest.mark.holds("routing.md#health-5")
async def test_open_circuit_that_gets_no_call_stays_known_while_its_worker_runs(
    short_leases: None, workers: list[Worker], store: Store
) -> None:
    one = workers[0]
    one.fail(UpstreamUnreachable())

    async def known() -> bool:
        return await open_models(store) == {"m"}

    await until(known)
    lease = f"lease:{one.sync._me}"
    first = int(await store.client.hget(HASH, lease) or 0)

    async def past_the_first_lease() -> bool:
        assert await known()
        seconds, _ = await store.client.time()
        return seconds * 1000 > first + 1000

    await until(past_the_first_lease)
    (event,) = await read_circuit_events(store)
    assert await request_probe(store, {CircuitKey("p", 0, "m")}) == [event]
    await until(lambda: one.target.ready(time.monotonic()))
    (event,) = await read_circuit_events(store)
    assert (event.is_due, event.worker) == (True, one.sync._me), "a request for a probe ends with the same lease"


@pytest.mark.holds("routing.md#health-5")
async def test_what_a_worker_reported_ends_at_once_when_it_stops(workers: list[Worker], store: Store) -> None:
    async with late(store, "here") as stopping:
        stopping.fail(UpstreamUnreachable())

        async def known() -> bool:
            return await open_models(store) == {"m"}

        await until(known)
    assert await read_circuit_events(store) == []


@asynccontextmanager
async def late(store: Store, machine: str) -> AsyncIterator[Worker]:
    """A worker that starts now."""
    worker = Worker(store, machine)
    worker.sync.start()
    await until(lambda: worker.sync.listening)
    yield worker
    await worker.sync.close()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (UpstreamRateLimited(retry_after=20.0), "limited"),
        (UpstreamAuthError(), "credential"),
        (UpstreamOverloaded(code="service_unavailable"), "credit"),
    ],
    ids=["limited", "credential", "credit"],
)
async def test_what_the_upstream_says_of_a_credential_holds_on_every_machine(
    workers: list[Worker], error: GatewayError, cause: str
) -> None:
    one, sibling, elsewhere = workers
    one.fail(error)
    assert await until(lambda: {worker.target.blocking().cause for worker in (sibling, elsewhere)} == {cause})


async def test_credentials_that_the_proxy_of_a_machine_refuses_stay_in_use_on_other_machines(
    workers: list[Worker],
) -> None:
    one, sibling, elsewhere = workers
    one.fail(refused())
    await all_delivered(one, sibling, elsewhere)
    assert one.target.blocking().cause == sibling.target.blocking().cause == "credential"
    assert elsewhere.target.blocking().cause is None


async def test_a_recovered_target_does_not_close_the_circuit_of_a_limited_one_elsewhere(workers: list[Worker]) -> None:
    one, sibling, elsewhere = workers
    one.fail(UpstreamUnreachable())
    elsewhere.target.apply("limited", time.monotonic(), 60.0)
    one.target.until = time.monotonic()
    one.target.succeeded(time.monotonic(), 0.0)
    await all_delivered(one, sibling, elsewhere)
    assert (sibling.target.cause, elsewhere.target.cause) == (None, "limited")


@pytest.mark.parametrize(("cause", "taken"), [("limited", "limited"), ("failures", None)])
async def test_event_of_an_older_release_applies_to_every_capability_if_the_upstream_said_it(
    workers: list[Worker], store: Store, cause: str, taken: str | None
) -> None:
    """It names no capability and no machine."""
    worker = workers[0]
    speech = worker.health.circuit("p", 0, "m", "speech")
    event: dict[str, Any] = {"worker": "old", "provider": "p", "credential": 0, "model": "m", "cause": cause}
    event |= {"seconds": 30.0, "at": time.time()}
    await store.client.publish(CHANNEL, msgspec.json.encode(event))
    await all_delivered(workers[1], worker)
    assert (worker.target.cause, speech.cause) == (taken, taken)


# A machine that reaches no upstream ----------------------------------------------------------------------------------


def test_a_machine_whose_targets_in_use_all_fail_is_recognised_until_a_probe_is_due() -> None:
    health = CircuitRegistry(Metrics())
    first, second = health.circuit("p", 0, "m", "chat"), health.circuit("q", 0, "m", "chat")
    health.circuit("q", 0, "never used", "chat")
    first.succeeded(0.0, 0.1)
    second.succeeded(0.0, 0.1)
    assert not health.every_target_fails(20.0)
    for _ in range(5):
        first.failed(UpstreamUnreachable(), 20.0)
    assert not health.every_target_fails(20.0), "the second target has not failed"
    second.failed(UpstreamUnreachable(), 20.0)
    assert health.every_target_fails(20.0)
    assert not health.every_target_fails(first.until), "without calls it would never recover"


def test_a_target_that_answers_keeps_the_machine_ready() -> None:
    health = CircuitRegistry(Metrics())
    first, second = health.circuit("p", 0, "m", "chat"), health.circuit("q", 0, "m", "chat")
    for _ in range(5):
        first.failed(UpstreamUnreachable(), 20.0)
    second.succeeded(20.0, 0.1)
    second.failed(UpstreamUnreachable(), 21.0)
    assert not health.every_target_fails(21.0)


@pytest.mark.parametrize("error", [UpstreamRateLimited(retry_after=20.0), UpstreamAuthError()], ids=repr)
def test_machine_whose_credentials_are_refused_or_limited_stays_ready(error: GatewayError) -> None:
    health = CircuitRegistry(Metrics())
    health.circuit("p", 0, "m", "chat").failed(error, 20.0)
    assert not health.every_target_fails(20.0)


async def test_an_outage_that_one_account_sees_holds_for_all_workers_and_ends_with_an_answer(
    workers: list[Worker],
) -> None:
    one, sibling, elsewhere = workers
    for _ in range(2):
        one.target.failed(UpstreamError(), time.monotonic(), account="a", digest=1)
    await all_delivered(one, sibling, elsewhere)
    assert ["a" in worker.target.outages.until for worker in workers] == [True, True, True]
    assert [worker.target.cause for worker in workers] == [None, None, None]
    elsewhere.target.succeeded(time.monotonic(), 0.1, "b")
    await until(lambda: not any(worker.target.outages for worker in workers))


async def test_an_outage_of_connections_stays_on_its_machine(workers: list[Worker]) -> None:
    one, sibling, elsewhere = workers
    for _ in range(2):
        one.target.failed(UpstreamUnreachable(), time.monotonic(), account="a")
    await all_delivered(one, sibling, elsewhere)
    assert ["a" in worker.target.outages.until for worker in workers] == [True, True, False]

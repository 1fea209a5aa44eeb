"""A subscription ends when it is cancelled, whatever it is doing."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
import uvloop

from gateway.inference.active_calls import ActiveCalls
from gateway.metrics import Metrics
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.circuit_sync import CircuitSync
from gateway.store import Store
from tests.polling import until

TURNS = 40  # of the event loop; it has subscribed and waits after some 20
TRIES = 3  # for each number of turns: replies of the store come in different ones
Listener = ActiveCalls | CircuitSync


def running(store: Store) -> Listener:
    return ActiveCalls(None, store)  # type: ignore[arg-type]  # it ends before its first beat


def health_sharing(store: Store) -> Listener:
    return CircuitSync(CircuitRegistry(Metrics()), store)


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def subscribe_and_wait(store: Store) -> None:
    async with store.channel("anything") as channel:
        while True:
            await channel.message(within=60)


async def deaf_to_cancellation(where: Path) -> list[int]:
    """After how many turns of the loop a subscription that was cancelled went on."""
    store, deaf = await Store.open(where, timeout=5.0), []
    for number in range(TURNS):
        for _ in range(TRIES):
            task = asyncio.create_task(subscribe_and_wait(store))
            await turns(number)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=20.0)
            if not done:
                deaf.append(number)
                task.cancel()
                await asyncio.wait([task])
    await store.close()
    return deaf


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_cancellation_ends_a_subscription_in_any_loop_iteration(valkey, new_loop):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(deaf_to_cancellation(valkey)) == []


@pytest.mark.parametrize("listener", [running, health_sharing])
async def test_listener_closes_in_any_loop_iteration(store, listener):
    tasks = asyncio.all_tasks()
    for number in range(TURNS):
        one = listener(store)
        one.start()
        await turns(number)
        async with asyncio.timeout(30):
            await one.close()
    assert await until(lambda: asyncio.all_tasks() <= tasks)


@pytest.mark.parametrize("listener", [running, health_sharing])
async def test_listener_that_never_started_can_be_closed(store, listener):
    tasks = asyncio.all_tasks()
    await listener(store).close()
    assert asyncio.all_tasks() == tasks


async def test_lost_connection_does_not_hide_that_the_listener_was_cancelled(store):
    subscribed, lost = asyncio.Event(), asyncio.Event()

    async def listen() -> None:
        async with store.channel("anything") as channel:
            await channel.message(within=60)
            subscribed.set()
            with contextlib.suppress(asyncio.CancelledError):
                await lost.wait()
            await channel.message(within=60)

    task = asyncio.create_task(listen())
    await subscribed.wait()
    await store.client.client_kill_filter(_type="pubsub")
    task.cancel()
    await asyncio.wait([task], timeout=60)
    assert task.cancelled()

"""A subscription gets every message from its start on, or says that one may be missing; it ends when cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.errors import StoreUnavailable
from gateway.inference.active_calls import ActiveCalls
from gateway.metrics import Metrics
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.circuit_sync import CircuitSync
from gateway.store import Store
from gateway.store.subscription import MOST_UNREAD, Subscription
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


@pytest.mark.parametrize("protocol", [2, 3])
async def test_messages_of_a_channel_arrive_in_order(valkey, protocol):
    store = await Store.open(f"unix://{valkey}?protocol={protocol}")
    async with store.channel("anything") as channel:
        first = await channel.message(within=20.0)
        for text in ("one", "two"):
            await store.client.publish("anything", text)
        found = [await channel.message(within=20.0) for _ in range(2)]
        assert await channel.message(within=0.01) is None
    await store.close()
    assert first is not None and first["type"] == "subscribe"
    assert [message and (message["type"], message["data"]) for message in found] == [
        ("message", b"one"),
        ("message", b"two"),
    ]


async def test_lost_connection_ends_a_subscription(store):
    async with store.channel("anything") as channel:
        await channel.message(within=20.0)
        await store.client.client_kill_filter(_type="pubsub")
        with pytest.raises(StoreUnavailable):
            await channel.message(within=20.0)


async def test_listener_hears_what_comes_after_a_lost_connection(store, monkeypatch):
    monkeypatch.setattr("gateway.store.store.LISTEN_AGAIN", 0.0)
    heard: list[tuple[str, bytes]] = []
    lost: list[int] = []

    async def receive(message: dict[str, Any]) -> None:
        heard.append((message["type"], message["data"]))

    async def subscriptions(number: int) -> bool:
        return await until(lambda: sum(kind == "subscribe" for kind, _ in heard) == number)

    task = asyncio.create_task(store.listen("anything", receive, lost=lambda: lost.append(len(heard))))
    assert await subscriptions(1)
    await store.client.client_kill_filter(_type="pubsub")
    assert await subscriptions(2)
    await store.client.publish("anything", "later")
    assert await until(lambda: heard[-1] == ("message", b"later"))
    task.cancel()
    await asyncio.wait([task])
    assert lost == [1]


def test_reader_that_is_too_late_has_to_subscribe_again():
    subscription = Subscription()
    for number in range(MOST_UNREAD + 1):
        subscription.push([b"message", b"anything", b"%d" % number])
    with pytest.raises(StoreUnavailable):
        asyncio.run(subscription.message(within=1.0))

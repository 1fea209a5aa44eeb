"""A gateway sends its events once, whatever happens to the receiver and to the process that sends."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from gateway.notifications.queue import CREATED, DUE
from tests.notifications.receiver import SECRET, Receiver
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served

NOTIFY = """
[notify]
webhook = "{url}"
secrets = ["env:HOOK_SECRET"]
balance_low = "5"
"""
ACCOUNTS = 30


async def gateway_with(yard: Yard, url: str) -> Served:
    gateway = yard.make(MODELS + NOTIFY.format(url=url))
    gateway.environment["HOOK_SECRET"] = SECRET
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    return gateway


async def killed_importer(gateway: Served) -> None:
    """Kill the importer, and wait for the next one."""
    old = gateway.importer
    os.kill(old, signal.SIGKILL)
    await until(lambda: gateway.importer not in (0, old))


async def all_is_due(gateway: Served) -> None:
    """Let every claim of a killed importer and every pause after a failure have ended, as a minute would."""
    async with gateway.session() as session:
        client: Any = session.store.client
        if waiting := await client.zrange(DUE, 0, -1):
            await client.zadd(DUE, dict.fromkeys(waiting, 1), xx=True)


@pytest.mark.holds("notifications.md#events-4")
async def test_no_event_is_lost_or_doubled_while_receiver_and_importer_die(yard: Yard) -> None:
    away = Receiver()
    gateway = await gateway_with(yard, away.url)
    await until(lambda: gateway.importer)
    async with gateway.session() as session:
        for number in range(ACCOUNTS):
            await session.accounts.create(f"a{number}", balance=1)
        store = session.store.client

        async def is_queued() -> bool:  # a killed importer loses hints, and the sweep takes minutes
            return int(await store.zcard(CREATED)) == ACCOUNTS

        await until(is_queued)
    await until(lambda: "is not delivered by webhook yet" in gateway.text)
    await killed_importer(gateway)
    async with away as receiver:
        receiver.answers = [500, 500]
        await all_is_due(gateway)
        await until(lambda: len(receiver.events()) >= 5)
        await killed_importer(gateway)
        await all_is_due(gateway)
        await until(
            lambda: (
                {event["data"]["account"] for event in receiver.events("balance.low")}
                >= {f"a{number}" for number in range(ACCOUNTS)}
            )
        )
        found = [event["data"]["account"] for event in receiver.events("balance.low")]
        assert len(found) == len(set(found)), "an event had two ids"

        async def is_empty() -> bool:
            return (await gateway.command("notify", "list")) == []

        await until(is_empty)


async def test_call_that_lowers_the_balance_is_told_within_seconds(yard: Yard) -> None:
    async with Receiver() as receiver:
        gateway = await gateway_with(yard, receiver.url)
        balance = float((await gateway.command("accounts", "show", "test"))["balance"])
        await gateway.command("notify", "threshold", "test", f"{balance - 0.000000001:.9f}")
        assert (await gateway.chat()).status == 200
        await until(lambda: receiver.events("balance.low"))
        [event] = receiver.events("balance.low")
        assert event["data"]["account"] == "test"

        async def counted() -> bool:
            metrics = await gateway.metrics()
            name = "gateway_notifications_total{channel=webhook,event=balance.low,result=sent}"
            return metrics.get(name) == 1 and metrics.get("gateway_notifications_waiting") == 0

        await until(counted)

"""Two gateways with one store: it is seen which configuration each of them runs, and what a reload has changed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from gateway.admin.machines import Machine, read_machines
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.rolling import two_gateways
from tests.processes.served import MODELS, Served
from tests.processes.test_reload import DEARER


async def machines(gateway: Served) -> list[Machine]:
    async with gateway.session() as session:
        return await read_machines(session.store)


async def hash_of(gateway: Served) -> str:
    """The hash that its metrics name."""
    name = "gateway_configuration_info{hash="

    async def named() -> list[str]:
        return [key.removeprefix(name)[:-1] for key in await gateway.metrics() if key.startswith(name)]

    [found] = await until(named)
    return found


@pytest.mark.holds("operations/machines.md#several-machines-1", "operations/machines.md#several-machines-2")
async def test_machines_whose_prices_differ_have_other_hashes_until_the_second_is_reloaded(
    yard: Yard, store_url: str
) -> None:
    one, two = await two_gateways(yard, store_url)
    assert await hash_of(one) == await hash_of(two)
    one.configure(DEARER)
    os.kill(one.pid, signal.SIGHUP)

    async def differing() -> bool:
        return len({machine.configuration for machine in await machines(two)}) == 2

    await until(differing)
    first, second = await hash_of(one), await hash_of(two)
    assert first != second
    assert {machine.configuration for machine in await machines(one)} == {first, second}

    async def changes() -> list[Any]:
        """Of the machine whose importer has moved the event into its database; the other's command is refused."""
        runs = [await asyncio.to_thread(machine.run, "audit-trail", "--json") for machine in (one, two)]
        events = [event for done in runs if done.returncode == 0 for event in json.loads(done.stdout)]
        return [event for event in events if event["action"] == "configuration.change"]

    [event] = await until(changes)
    assert event["before"]["prices"]["quick"][0]["input"] == "1000"
    assert event["after"]["prices"]["quick"][0]["input"] == "5000"

    one.configure(MODELS)
    os.kill(one.pid, signal.SIGHUP)

    async def equal() -> bool:
        return len({machine.configuration for machine in await machines(two)}) == 1

    await until(equal)
    os.kill(one.pid, signal.SIGTERM)
    assert await one.ended() == 0
    assert len(await machines(two)) == 1

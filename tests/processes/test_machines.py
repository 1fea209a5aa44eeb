"""Two gateways with one store: it is seen which configuration each of them runs, and what a reload has changed."""

from __future__ import annotations

import os
import signal

import pytest

from gateway.admin.machines import Machine, read_machines
from gateway.admin.outbox import AuditOutbox
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.rolling import two_gateways
from tests.processes.served import MODELS, Served
from tests.processes.test_reload import DEARER


async def machines(gateway: Served) -> list[Machine]:
    async with gateway.session() as session:
        return await read_machines(session.store)


async def hashes(gateway: Served) -> list[str]:
    """The hashes that its metrics name."""
    name = "gateway_configuration_info{hash="
    return [key.removeprefix(name)[:-1] for key in await gateway.metrics() if key.startswith(name)]


@pytest.mark.holds("operations/machines.md#several-machines-1", "operations/machines.md#several-machines-2")
async def test_machines_whose_prices_differ_have_other_hashes_until_the_second_is_reloaded(
    yard: Yard, store_url: str
) -> None:
    one, two = await two_gateways(yard, store_url)
    assert await hashes(one) == await hashes(two)
    one.configure(DEARER)
    os.kill(one.pid, signal.SIGHUP)

    async def differing() -> bool:
        return len({machine.configuration for machine in await machines(two)}) == 2

    await until(differing)
    [first], [second] = await hashes(one), await hashes(two)
    assert first != second
    assert {machine.configuration for machine in await machines(one)} == {first, second}

    async with two.session() as session:
        events = [event for _, event in await AuditOutbox(session.store).read() if event is not None]
    [event] = [event for event in events if event.action == "configuration.change"]
    assert event.before["prices"]["quick"][0]["input"] == "1000"
    assert event.after["prices"]["quick"][0]["input"] == "5000"

    one.configure(MODELS)
    os.kill(one.pid, signal.SIGHUP)

    async def equal() -> bool:
        return len({machine.configuration for machine in await machines(two)}) == 1

    await until(equal)
    os.kill(one.pid, signal.SIGTERM)
    assert await one.ended() == 0
    assert len(await machines(two)) == 1

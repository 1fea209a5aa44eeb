"""A machine that reached no upstream is ready again when one takes a connection, and not when a probe is due."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import UpstreamUnreachable
from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import Circuit
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.upstream_reach import AT_MOST, UpstreamReach
from tests.polling import until

BEGAN = 1000.0


class Network:
    """What a connection meets."""

    def __init__(self) -> None:
        self.result: bool | None = False
        self.attempts = 0
        self.made = 0
        self.is_waited_for = False
        self.answers = asyncio.Event()
        self.answers.set()

    def waits(self) -> bool:
        return self.is_waited_for

    async def connects(self) -> bool | None:
        self.attempts += 1
        await self.answers.wait()
        await asyncio.sleep(0)
        return self.result


@pytest.fixture
def health() -> CircuitRegistry:
    return CircuitRegistry(Metrics())


@pytest.fixture
def failed(health: CircuitRegistry) -> Circuit:
    """The only target, which has just failed too often."""
    circuit = health.circuit("p", 0, "m", "chat")
    for _ in range(5):
        circuit.failed(UpstreamUnreachable().began_at("connection"), BEGAN)
    assert circuit.cause == "failures"
    return circuit


async def settled(network: Network, attempts: int) -> None:
    """So many attempts are over."""
    await until(lambda: network.attempts == attempts)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_machine_is_not_ready_while_nothing_connects_though_a_probe_is_due(
    health: CircuitRegistry, failed: Circuit
) -> None:
    network = Network()
    reach = UpstreamReach(health, network)
    assert not reach.look(BEGAN)
    assert network.attempts == 0, "no call may probe it yet"
    for number in (1, 2, 3):
        assert not reach.look(failed.until + number)
        await settled(network, number)
    network.result = True
    assert not reach.look(failed.until + 4)
    await settled(network, 4)
    assert reach.look(failed.until + 5)
    assert reach.look(failed.until + 6), "until the probe fails"
    assert network.attempts == 4


async def test_failed_probe_makes_the_machine_unready_again(health: CircuitRegistry, failed: Circuit) -> None:
    network = Network()
    network.result = True
    reach = UpstreamReach(health, network)
    reach.look(BEGAN)
    due = failed.until
    reach.look(due)
    await settled(network, 1)
    assert reach.look(due + 1)
    failed.failed(UpstreamUnreachable().began_at("connection"), due + 2)
    assert not reach.look(due + 2)


async def test_answer_makes_the_machine_ready(health: CircuitRegistry, failed: Circuit) -> None:
    reach = UpstreamReach(health, Network())
    assert not reach.look(BEGAN)
    failed.succeeded(failed.until, 0.0)
    assert reach.look(BEGAN + 1)


async def test_machine_whose_connections_cannot_be_tried_is_ready_for_the_probe(
    health: CircuitRegistry, failed: Circuit
) -> None:
    network = Network()
    network.result = None
    reach = UpstreamReach(health, network)
    reach.look(BEGAN)
    reach.look(failed.until)
    await settled(network, 1)
    assert reach.look(failed.until + 1)


async def test_machine_is_ready_for_a_probe_after_five_minutes_without_a_connection(
    health: CircuitRegistry, failed: Circuit
) -> None:
    reach = UpstreamReach(health, Network())
    reach.look(BEGAN)
    assert not reach.look(failed.until)
    assert not reach.look(failed.until + AT_MOST - 1)
    assert reach.look(failed.until + AT_MOST)
    reach.close()


async def test_one_attempt_runs_at_a_time(health: CircuitRegistry, failed: Circuit) -> None:
    network = Network()
    network.answers.clear()
    reach = UpstreamReach(health, network)
    reach.look(BEGAN)
    for number in range(3):
        reach.look(failed.until + number)
        await asyncio.sleep(0)
    assert network.attempts == 1
    reach.close()


async def test_machine_is_not_ready_while_calls_wait_for_connections_and_nothing_connects(
    health: CircuitRegistry,
) -> None:
    network = Network()
    network.is_waited_for = True
    reach = UpstreamReach(health, network)
    assert reach.look(BEGAN), "nothing was tried yet"
    await settled(network, 1)
    network.is_waited_for = False  # the calls have failed
    assert not reach.look(BEGAN + 1)
    await settled(network, 2)
    assert not reach.look(BEGAN + 2)
    network.result = True
    await settled(network, 3)
    assert reach.look(BEGAN + 3)
    assert reach.look(BEGAN + 4)
    assert network.attempts == 3


@pytest.mark.parametrize("result", [True, None])
async def test_machine_stays_ready_while_calls_wait_if_a_host_takes_a_connection_or_none_can_be_tried(
    health: CircuitRegistry, result: bool | None
) -> None:
    network = Network()
    network.result, network.is_waited_for = result, True
    reach = UpstreamReach(health, network)
    for number in range(4):
        assert reach.look(BEGAN + number)
        await settled(network, number + 1)


async def test_machine_stays_ready_if_the_calls_got_their_connections_during_the_attempt(
    health: CircuitRegistry,
) -> None:
    network = Network()
    network.is_waited_for = True
    reach = UpstreamReach(health, network)
    network.answers.clear()
    assert reach.look(BEGAN)
    await until(lambda: network.attempts == 1)
    network.made += 1
    network.answers.set()
    await settled(network, 1)
    network.is_waited_for = False
    assert reach.look(BEGAN + 1)
    assert network.attempts == 1


async def test_machine_is_not_ready_if_the_calls_failed_during_the_attempt(health: CircuitRegistry) -> None:
    network = Network()
    network.is_waited_for = True
    reach = UpstreamReach(health, network)
    network.answers.clear()
    assert reach.look(BEGAN)
    await until(lambda: network.attempts == 1)
    network.is_waited_for = False
    network.answers.set()
    await settled(network, 1)
    assert not reach.look(BEGAN + 1)
    reach.close()


async def test_machine_without_connections_for_waiting_calls_is_ready_after_five_minutes(
    health: CircuitRegistry,
) -> None:
    network = Network()
    network.is_waited_for = True
    reach = UpstreamReach(health, network)
    reach.look(BEGAN)
    await settled(network, 1)
    assert not reach.look(BEGAN + AT_MOST - 1)
    await settled(network, 2)
    assert reach.look(BEGAN + AT_MOST)
    reach.close()

"""One address opens as many connections as there are places, with heads that have no end; others are served.

Found by attacking this gateway itself. On 1f67566 with a limit of 4,096 descriptors and 5,000 connections, `/v1`
answered 0 of 30 requests of another address until the heads were cut, and the attacker only had to do it again.
`tests/chaos/chaos_crowd.py` tries that crowd, on a machine without other work.
"""

from __future__ import annotations

import pytest

from benchmarks.crowd import PATHS
from tests.crowds import Limited, crowded, started
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.conftest import yard as yard


class Small(Limited):
    """With some 180 places on each port, and a crowd for less time."""

    descriptors = 600
    header_timeout = 5.0
    connections = 400
    every = 0.1
    within = 4.0  # other tests use the processor, and the console has less of it than they


@pytest.mark.holds("operations/network.md#connections-4")
@pytest.mark.slow
async def test_another_address_is_served_beside_a_crowd_on_all_ports(yard: Yard) -> None:
    gateway, console_port = await started(yard, Small)
    await crowded(gateway, console_port, addresses=3)

    async def counted() -> bool:
        metrics = await gateway.metrics()
        counts = [metrics.get(f"gateway_connections_dropped_total{{kind=unfinished,port={port}}}", 0) for port in PATHS]
        return min(counts) > 0

    await until(counted)
    assert all(f"connections ({port}): closed" in gateway.text for port in PATHS)

"""A gateway with few descriptors, a crowd before its ports, and whether another address is served beside it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from benchmarks.crowd import CUT_WITHIN, PATHS, beside_a_crowd, hostile_addresses
from gateway.testing.ports import free_ports
from tests.processes.conftest import Yard
from tests.processes.served import Served

SERVED = 28  # of 30 requests within 2 s


class Limited(Served):
    """A gateway with a hard limit of descriptors for each of its processes."""

    descriptors = 4_096
    header_timeout = 10.0
    connections = 5_000
    every = 0.2  # seconds between two requests
    within = 2.0  # seconds for an answer

    def configure(self, models: str) -> None:
        super().configure(f"[server.limits]\nheader_timeout = {self.header_timeout}\n{models}")

    def launch(self, *options: str) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", f'ulimit -n {self.descriptors}; exec "$0" "$@"', sys.executable, "-m", "gateway",
                 "serve", "--config", str(self.config), *options],
                stdout=log, stderr=log, cwd=self.folder, env=self.environment, start_new_session=True,
            )  # fmt: skip


async def crowded(gateway: Limited, console_port: int, addresses: int) -> None:
    """A crowd before one port after the other: another address is served, and every head is cut."""
    numbers = {"v1": gateway.port, "side": gateway.side_port, "console": console_port}
    for port, path in PATHS.items():
        answers, cut = await asyncio.to_thread(
            beside_a_crowd,
            numbers[port],
            path,
            gateway.connections,
            hostile_addresses(addresses),
            every=gateway.every,
            within=gateway.within,
        )
        assert answers.in_time >= SERVED, (port, answers)
        assert cut.opened > 0.9 * gateway.connections, (port, cut)
        assert cut.closed == cut.opened, (port, cut)
        assert cut.longest <= CUT_WITHIN, (port, cut)


async def started(yard: Yard, kind: type[Limited]) -> tuple[Limited, int]:
    """A gateway, and the port of its console."""
    [console_port] = free_ports(1)
    gateway = yard.make(kind=kind, console_port=console_port)
    assert isinstance(gateway, Limited)
    await gateway.started()
    return gateway, console_port

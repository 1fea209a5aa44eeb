"""File descriptors and client connections of a gateway that runs as processes."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.hostile.raw import connection
from tests.polling import until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import Served

MOST = 20


class LowLimit(Served):
    """A gateway that is started with a low soft limit."""

    def launch(self, *options: str) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", 'ulimit -Sn 256; exec "$0" "$@"', sys.executable, "-m", "gateway", "serve",
                 "--config", str(self.config), *options],
                stdout=log, stderr=log, cwd=self.folder, env=self.environment, start_new_session=True,
            )  # fmt: skip


def soft_limit(pid: int) -> int:
    limits = Path(f"/proc/{pid}/limits").read_text()
    found = re.search(r"^Max open files +(\d+)", limits, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.holds("operations/network.md#connections-1")
async def test_soft_limit_of_descriptors_is_raised_to_the_hard_one_in_every_worker(yard: Yard) -> None:
    gateway = yard.make(kind=LowLimit, workers=2)
    await gateway.started(workers=2)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert {soft_limit(pid) for pid in gateway.workers} == {min(hard, 1 << 20)}


class Limited(Served):
    """A gateway with a low limit of connections."""

    def configure(self, models: str) -> None:
        super().configure(f"[server.limits]\nmax_connections = {MOST}\n{models}")


@pytest.mark.holds("operations/network.md#connections-4")
async def test_connections_at_the_limit_are_logged_and_counted(serve: Serve) -> None:
    gateway = await serve(kind=Limited)
    async with AsyncExitStack() as stack:
        for _ in range(MOST + 5):
            await stack.enter_async_context(connection(("127.0.0.1", gateway.port)))
        await until(lambda: f"at the limit of {MOST} connections" in gateway.text)

        async def counted() -> bool:
            return (await gateway.metrics()).get("gateway_connections_dropped_total{kind=idle,port=v1}", 0) >= 5

        await until(counted)
        assert (await gateway.chat()).status == 200

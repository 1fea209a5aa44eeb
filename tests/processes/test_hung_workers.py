"""A worker whose event loop does not run is noticed and replaced; a log that nobody reads stops nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import aiohttp
import pytest

from tests.delays import time_passes
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, install_plugin, is_alive

UNREADY, KILLED = 2.5, 5.0  # seconds, instead of 10 and 30
HASTY = f"""
import sys
from gateway.runtime import worker_process
from gateway.cli import main

worker_process.UNREADY_AFTER, worker_process.KILLED_AFTER = {UNREADY}, {KILLED}
sys.exit(main())
"""
PLUGIN = """
import asyncio, threading
from gateway import Chat, ChatChunk, Provider, hookimpl

class Bad(Provider, Chat):
    name = "bad"
    async def stream_chat(self, request, target):
        yield ChatChunk.text("half ")
        if target.model == "blocks":
            threading.Event().wait()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

@hookimpl
def register_providers(register):
    register(Bad)
"""
BAD = """
[providers.bad]
plugin = "bad"

[models.blocks]
provider = "bad"
price = { input = 1000, output = 2000 }

[models.deaf]
provider = "bad"
price = { input = 1000, output = 2000 }
"""


class HastyGateway(Served):
    """A gateway that waits less for its workers."""

    def launch(self, *options: str) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HASTY, "serve", "--config", str(self.config), *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )


async def readiness(gateway: Served) -> str:
    return (await gateway.side("/readyz"))[2]


async def nothing_is_held(gateway: Served) -> bool:
    return (await gateway.account()).held == 0


@pytest.mark.holds("operations.md#operations-2")
@pytest.mark.parametrize("way", ["stopped", "blocked"])
async def test_hung_worker_is_not_ready_then_replaced_and_its_calls_are_charged_for_what_they_delivered(
    yard: Yard, way: str
) -> None:
    gateway = yard.make(MODELS + BAD, kind=HastyGateway)
    install_plugin(gateway, "bad", PLUGIN)
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    [hung] = gateway.workers
    stream = await gateway.stream("endless").flowing()
    if way == "stopped":
        os.kill(hung, signal.SIGSTOP)
    else:
        blocking = gateway.stream("blocks")
    assert await gateway.readiness() == 200, "a worker may be busy for a moment"

    async def unready() -> bool:
        return '"workers": false' in await readiness(gateway)

    await until(unready)
    assert is_alive(hung)

    async def replaced() -> bool:
        return hung not in gateway.workers and await gateway.readiness() == 200

    await until(replaced)
    assert (await gateway.chat()).status == 200
    assert not (await stream.ended()).whole
    if way == "blocked":
        await blocking.ended()
    await until(lambda: nothing_is_held(gateway))
    lines = {line.request_id: line for line in await gateway.charges()}
    assert lines[stream.request_id].meta["outcome"] == "worker_died"
    assert lines[stream.request_id].amount < 0
    assert "worker 0 has not reported for" in gateway.text
    assert "; killing it" in gateway.text
    assert (await gateway.metrics())["gateway_worker_restarts_total"] == 1
    await gateway.proved()


@pytest.mark.holds("operations.md#operations-2")
async def test_worker_that_reports_again_is_ready_again_and_not_replaced(yard: Yard) -> None:
    gateway = yard.make(kind=HastyGateway)
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    [worker] = gateway.workers
    os.kill(worker, signal.SIGSTOP)

    async def is_ready() -> bool:
        return await gateway.readiness() == 200

    async def is_unready() -> bool:
        return not await is_ready()

    await until(is_unready)
    os.kill(worker, signal.SIGCONT)
    await until(is_ready)
    await time_passes(KILLED - UNREADY)
    assert gateway.workers == [worker]
    assert "worker 0 reports again" in gateway.text
    assert (await gateway.chat()).status == 200


async def test_worker_ends_with_calls_that_their_provider_does_not_end(yard: Yard) -> None:
    gateway = yard.make(MODELS + BAD, drain_timeout=0.5)
    install_plugin(gateway, "bad", PLUGIN)
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    stream = await gateway.stream("deaf").flowing(1)
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    assert await gateway.ended() == 0
    await stream.ended()
    assert "service_unavailable" in stream.text
    assert "does not end; killing it" not in gateway.text
    assert "ending without 1 calls that their providers do not end" in gateway.text
    await gateway.started()
    assert await nothing_is_held(gateway)
    await gateway.proved()


class Unread(Served):
    """A gateway whose log goes into a pipe that nobody reads."""

    def launch(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(self.config), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )


@pytest.mark.holds("operations.md#operations-1")
async def test_gateway_whose_log_nobody_reads_serves_counts_the_dropped_lines_and_stops(yard: Yard) -> None:
    gateway = yard.make(kind=Unread)
    await gateway.started()
    await asyncio.to_thread(gateway.create_key)
    long_line = {"X-Client-Request-Id": "i" * 500}
    async with aiohttp.ClientSession() as session:

        async def dropped() -> float:
            for _ in range(100):
                async with session.get(f"http://127.0.0.1:{gateway.port}/{'x' * 200}", headers=long_line) as response:
                    assert response.status == 404
            return (await gateway.metrics()).get("gateway_log_lines_dropped_total", 0.0)

        await until(dropped, within=25.0)  # more than a pipe and a mebibyte: some 1,500 lines
    assert (await gateway.chat(timeout=20.0)).status == 200
    assert await gateway.readiness() == 200
    process = gateway.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    assert await gateway.ended() == 0
    assert process.stderr is not None
    process.stderr.close()

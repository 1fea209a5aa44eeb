"""The ends of a gateway: told to drain, told twice, told by Ctrl-C, and killed outright."""

import asyncio
import contextlib
import os
import signal
import time

import pytest

from tests.polling import until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import children, is_alive, port_is_free


@pytest.mark.holds(
    "README.md#operate-it-3", "operations/start.md#signals-1", "operations/start.md#signals-6", "scaling.md#limits-4"
)
async def test_sigterm_finishes_running_streams_and_takes_no_new_connection(serve: Serve) -> None:
    gateway = await serve(workers=2)
    start = (await gateway.account()).balance
    streams = await gateway.flowing(8)
    processes = children(gateway.pid)
    os.kill(gateway.pid, signal.SIGTERM)
    await until(lambda: gateway.refuses_connections())
    assert await gateway.readiness() == 503
    assert (await gateway.side("/healthz"))[0] == 200
    for stream in streams:
        assert (await stream.ended()).whole
    assert await gateway.ended() == 0
    assert not any(map(is_alive, processes))
    account = await gateway.account()
    assert account.held == 0
    assert account.balance < start
    used = await gateway.charges()
    assert len(used) == 8
    assert not any(line.meta.get("estimated") for line in used)
    assert (await gateway.command("audit"))["mismatches"] == []


@pytest.mark.holds("operations/start.md#signals-1")
async def test_drain_timeout_cuts_endless_streams_and_bills_them(serve: Serve) -> None:
    gateway = await serve(drain_timeout=0.5)
    stream = await gateway.stream("endless").flowing()
    started = time.monotonic()
    os.kill(gateway.pid, signal.SIGTERM)
    await stream.ended()
    assert not stream.whole
    assert '"error":{"message":"' in stream.text, "the client is told why"
    assert await gateway.ended() == 0
    assert time.monotonic() - started >= 0.5
    account = await gateway.account()
    assert account.held == 0
    (line,) = await gateway.charges()
    assert line.meta["usage"]["out_text"] >= 3
    await gateway.proved()


@pytest.mark.holds("operations/start.md#signals-2")
async def test_second_signal_does_not_wait_for_streams_but_settles_them(serve: Serve) -> None:
    gateway = await serve(drain_timeout=300.0)  # longer than `ended` waits
    stream = await gateway.stream("endless").flowing()
    os.kill(gateway.pid, signal.SIGTERM)
    await until(lambda: gateway.refuses_connections())
    await stream.flowing(stream.words + 3)  # it goes on meanwhile
    os.kill(gateway.pid, signal.SIGINT)
    assert await gateway.ended() == 0
    assert not (await stream.ended()).whole
    assert (await gateway.account()).held == 0
    await gateway.proved()


@pytest.mark.holds("operations/start.md#signals-5")
async def test_control_c_reaches_the_whole_group_and_cuts_no_stream(serve: Serve) -> None:
    gateway = await serve()
    streams = await gateway.flowing(4)
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(gateway.workers[0], number)  # not for workers, whoever sends it
    os.killpg(os.getpgid(gateway.pid), signal.SIGINT)
    for stream in streams:
        assert (await stream.ended()).whole
    assert await gateway.ended() == 0
    assert "Traceback" not in gateway.text, gateway.text


async def test_sigterm_before_the_gateway_is_ready_ends_it(yard: Yard) -> None:
    gateway = yard.make(workers=2)
    gateway.launch()
    await until(lambda: children(gateway.pid))
    os.kill(gateway.pid, signal.SIGTERM)
    assert await gateway.ended() == 0
    assert "Traceback" not in gateway.text, gateway.text


@pytest.mark.holds("operations.md#operations-1", "operations/processes.md#what-happens-when-a-process-ends-6")
async def test_killed_supervisor_leaves_no_process_and_the_next_start_has_all_data(serve: Serve) -> None:
    gateway = await serve(workers=2)
    start = (await gateway.account()).balance
    key = await gateway.command("keys", "create", "test", "--name", "gone")
    assert (await gateway.chat(key=key["key"])).status == 200
    await asyncio.to_thread(gateway.run, "keys", "revoke", key["id"])
    streams = await gateway.flowing(6)
    processes = children(gateway.pid)
    assert len(processes) == 4  # workers, store, importer
    os.kill(gateway.pid, signal.SIGKILL)
    await until(lambda: gateway.refuses_connections())
    for stream in streams:
        assert (await stream.ended()).whole, "workers drain without their supervisor"
    await until(lambda: not any(map(is_alive, processes)))
    assert port_is_free(gateway.port)
    assert port_is_free(gateway.side_port)
    await gateway.ended()

    await gateway.started(workers=2)
    assert (await gateway.chat()).status == 200
    assert (await gateway.chat(key=key["key"])).status == 401

    async def settled() -> bool:
        return len(await gateway.charges()) == 1 + 6 + 1

    await until(settled)  # the streams ended while there was no store: their journals were replayed
    account = await gateway.account()
    assert account.held == 0
    assert account.balance < start
    await gateway.proved()


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-6")
async def test_gateway_restarts_at_once_after_its_supervisor_was_killed_under_load(serve: Serve) -> None:
    gateway = await serve()
    running, answered = True, 0

    async def load() -> None:
        nonlocal answered
        while running:
            with contextlib.suppress(Exception):
                await gateway.chat(timeout=2.0)
                answered += 1

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    await until(lambda: answered >= 8)
    os.kill(gateway.pid, signal.SIGKILL)
    await gateway.ended()
    await gateway.started()
    running = False
    await asyncio.gather(*tasks)
    assert (await gateway.chat()).status == 200

    async def released() -> bool:
        return (await gateway.account()).held == 0

    await until(released)
    await gateway.proved()

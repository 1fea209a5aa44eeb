"""Gateways are restarted one after the other behind a proxy (docs/operations/upgrade.md): no request fails."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from tests.delays import caller_is_silent_for
from tests.polling import until
from tests.processes.conftest import Serve, Yard
from tests.processes.proxies_in_front import Probed, nginx, nginx_binary, served, small_proxy
from tests.processes.rolling import load, roll, two_gateways
from tests.processes.served import Served

PROBES_EVERY = 0.5  # seconds


@pytest.mark.holds("operations/start.md#signals-1")
async def test_stopped_gateway_serves_on_and_is_not_ready_until_its_shutdown_delay_is_over(serve: Serve) -> None:
    gateway = await serve(shutdown_delay="2.0", workers=2)
    assert "Connection" not in (await gateway.chat()).headers
    stopped = time.monotonic()
    os.kill(gateway.pid, signal.SIGTERM)

    async def is_not_ready() -> bool:
        return await gateway.readiness() == 503

    await until(is_not_ready)
    answer = await gateway.chat()
    assert (answer.status, answer.headers["Connection"]) == (200, "close"), "a proxy keeps no connection to it"
    await until(lambda: gateway.refuses_connections())
    assert time.monotonic() - stopped > 1.9
    assert await gateway.ended() == 0
    assert "requests are served for 2 s more" in gateway.text


@pytest.mark.holds("operations/start.md#signals-2")
async def test_second_signal_ends_the_shutdown_delay(serve: Serve) -> None:
    gateway = await serve(shutdown_delay="300")  # longer than `ended` waits
    os.kill(gateway.pid, signal.SIGTERM)
    await until(lambda: "requests are served for 300 s more" in gateway.text)
    os.kill(gateway.pid, signal.SIGTERM)
    assert await gateway.ended() == 0


@pytest.mark.holds("operations/start.md#signals-7")
async def test_systemd_is_told_the_states_of_the_gateway_and_gives_it_a_shutdown_delay(yard: Yard) -> None:
    gateway = yard.make(shutdown_delay='"auto"')
    path, states = str(gateway.folder / "notify"), list[str]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.setblocking(False)

        def told() -> list[str]:
            """The states so far, without the messages to the watchdog."""
            with suppress(BlockingIOError):
                while state := systemd.recv(100).decode():
                    states.append(state.partition("\n")[0])
            return [state for state in states if state != "WATCHDOG=1"]

        gateway.environment |= {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000", "NO_WRITE_EXECUTE": "1"}
        await gateway.started()
        await until(lambda: told() == ["READY=1"])
        assert (await gateway.chat()).status == 401  # without a key
        os.kill(gateway.pid, signal.SIGHUP)
        await until(lambda: told() == ["READY=1", "RELOADING=1", "READY=1"])
        signs = states.count("WATCHDOG=1")
        await until(lambda: told() and states.count("WATCHDOG=1") > signs)
        os.kill(gateway.pid, signal.SIGTERM)
        await until(lambda: "requests are served for 5 s more" in gateway.text)
        assert told()[3:] == ["STOPPING=1"]
        os.kill(gateway.pid, signal.SIGTERM)
        assert await gateway.ended() == 0


@pytest.mark.holds("operations/start.md#signals-7")
@pytest.mark.slow
async def test_no_request_fails_behind_a_proxy_that_asks_whether_gateways_are_ready(yard: Yard, store_url: str) -> None:
    gateways = await two_gateways(yard, store_url, shutdown_delay="2.0")
    async with probing(gateways) as url, load(url, gateways[0].api_key) as answers:
        await roll(gateways, pause=1.0)
    assert answers.statuses.total() > 100
    assert answers.failed == 0, answers.statuses


@pytest.mark.holds("operations/start.md#signals-7")
@pytest.mark.slow
async def test_no_request_fails_behind_a_proxy_that_leaves_out_what_has_failed(yard: Yard, store_url: str) -> None:
    gateways = await two_gateways(yard, store_url)
    ports = [gateway.port for gateway in gateways]
    async with small_proxy(ports, fail_timeout=3.0) as url, load(url, gateways[0].api_key) as answers:
        await roll(gateways, pause=3.5)
    assert answers.statuses.total() > 100
    assert answers.failed == 0, answers.statuses


@pytest.mark.slow
@pytest.mark.skipif(nginx_binary() is None, reason="nginx is not installed")
@pytest.mark.parametrize("keeps_connections", [False, True])
async def test_no_request_fails_behind_nginx_with_its_defaults(
    yard: Yard, store_url: str, keeps_connections: bool
) -> None:
    gateways = await two_gateways(yard, store_url)
    kept = {"upstream": "keepalive 32;", "location": 'proxy_http_version 1.1; proxy_set_header Connection "";'}
    front = nginx(yard.folder / "nginx", [gateway.port for gateway in gateways], **(kept if keeps_connections else {}))
    async with front as url, load(url, gateways[0].api_key) as answers:
        await roll(gateways, pause=10.5)  # fail_timeout, in which nginx does not use a gateway that has refused
    assert answers.statuses.total() > 100
    assert answers.failed == 0, answers.statuses


@asynccontextmanager
async def probing(gateways: Sequence[Served]) -> AsyncIterator[str]:
    """A proxy that asks `/readyz` every half second, and takes a gateway out after one refusal, as HAProxy does."""
    proxy = Probed([gateway.port for gateway in gateways])

    async def probe(gateway: Served) -> None:
        while True:
            proxy.set_ready(gateway.port, await gateway.readiness() == 200)
            await caller_is_silent_for(PROBES_EVERY)

    probes = [asyncio.create_task(probe(gateway)) for gateway in gateways]
    try:
        async with served(proxy) as url:
            yield url
    finally:
        for task in probes:
            task.cancel()

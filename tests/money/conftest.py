"""A gateway whose upstreams are in this process, and one whose callers and upstreams are at the end of sockets."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tornado.ioloop import IOLoop

from gateway.config.settings import Settings
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream
from tests.conftest import PEPPER
from tests.money.in_batches import InBatches, in_batches
from tests.money.in_process import InProcess
from tests.money.in_realtime import LyingUpstream, RealtimeRunner
from tests.money.in_realtime import settings_of as realtime_settings
from tests.money.memory_upstream import MemoryUpstream
from tests.money.over_sockets import OverSockets
from tests.money.rounds import Runner
from tests.money.settings import money_settings, without_waits
from tests.money.upstreams import Upstreams


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Wait for little, and log errors only: corrected counts are the rule here, and no news."""
    without_waits(monkeypatch)
    caplog.set_level(logging.ERROR, logger="gateway")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Models of every dialect, at addresses that nothing is sent to."""
    monkeypatch.setattr("gateway.runtime.gateway.Upstream", MemoryUpstream)
    return money_settings(tmp_path, url="http://memory.invalid", away="http://away.invalid")


@pytest.fixture
def runner(gateway: Gateway) -> Runner:
    """Runs rounds in this process."""
    upstreams, driver = Upstreams(), InProcess(gateway)
    MemoryUpstream.upstreams = upstreams
    MemoryUpstream.leave = driver.leave
    return Runner(gateway, upstreams, driver)


@pytest.fixture
def batch_runner(gateway: Gateway) -> Runner:
    """Runs rounds as lines of batches in this process."""
    upstreams, driver = Upstreams(), InBatches(gateway)
    MemoryUpstream.upstreams = upstreams
    MemoryUpstream.leave = driver.leave
    return Runner(gateway, upstreams, driver, in_batches)


@pytest.fixture
def socket_runner(io_loop: IOLoop, store: Store, tmp_path: Path) -> Iterator[Runner]:
    """Runs rounds over sockets."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nothing listens there, and no other server gets the port
        server = FakeUpstream()
        io_loop.run_sync(server.start)
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
        settings = money_settings(tmp_path, url=server.url, away=away)
        gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER))
        gateway.overload.max_lag = 0.0  # callers, gateway and upstreams share the loop
        front, listener = HTTPServer(gateway.application(), ServerLimits()), socket.create_server(("127.0.0.1", 0))
        io_loop.run_sync(lambda: front.start(listener))
        upstreams = Upstreams()
        driver = OverSockets(gateway, upstreams, listener.getsockname()[1])
        server.answer = driver.answer
        yield Runner(gateway, upstreams, driver)
        front.close_listener()
        io_loop.run_sync(lambda: front.drain(2.0))
        io_loop.run_sync(gateway.close)
        io_loop.run_sync(server.close)


@pytest.fixture
def realtime_runner(io_loop: IOLoop, store: Store, tmp_path: Path) -> Iterator[RealtimeRunner]:
    """Runs realtime sessions over sockets."""
    upstream, serving = LyingUpstream(), AsyncExitStack()
    io_loop.run_sync(lambda: serving.enter_async_context(upstream.running()))
    gateway = io_loop.run_sync(lambda: Gateway.build(realtime_settings(tmp_path, upstream.url), store, pepper=PEPPER))
    gateway.overload.max_lag = 0.0  # callers, gateway and upstream share the loop
    front, listener = HTTPServer(gateway.application(), ServerLimits()), socket.create_server(("127.0.0.1", 0))
    io_loop.run_sync(lambda: front.start(listener))
    yield RealtimeRunner(gateway, upstream, listener.getsockname()[1])
    front.close_listener()
    io_loop.run_sync(lambda: front.drain(2.0))
    io_loop.run_sync(gateway.close)
    io_loop.run_sync(serving.aclose)

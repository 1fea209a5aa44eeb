"""The hooks that follow calls run in a thread of each plugin: one that blocks or raises is nobody else's problem."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from gateway import hookimpl
from gateway.billing.call_record import CallRecord
from gateway.config.settings import PluginSettings, Settings
from gateway.plugins.loader import PluginReport, Plugins, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.api.conftest import Client, client, settings, upstream
from tests.conftest import PEPPER
from tests.polling import at_once, until

__all__ = ["client", "settings", "upstream"]

LONGEST = 3.0  # seconds that a hook waits, should a test fail to let it go


class Observer:
    """A plugin whose hooks note what they get, and wait while `gate` is closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gate = threading.Event()
        self.gate.set()
        self.records: list[CallRecord] = []
        self.events: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.fails: BaseException | None = None

    def call_settled(self, record: CallRecord) -> None:
        self.threads.add(threading.current_thread())
        self.gate.wait(LONGEST)
        self.records.append(record)
        self.events.append("settled")
        if self.fails is not None:
            raise self.fails

    def shutdown(self, gateway: Any) -> None:
        self.threads.add(threading.current_thread())
        self.gate.wait(LONGEST)
        self.events.append("shutdown")

    def load(self, plugins: Plugins) -> None:
        module = ModuleType(self.name)
        module.call_settled = hookimpl(lambda record: self.call_settled(record))  # type: ignore[attr-defined]
        module.shutdown = hookimpl(lambda gateway: self.shutdown(gateway))  # type: ignore[attr-defined]
        plugins.load(PluginReport(name=self.name, version="0", source="test"), lambda: module)


@pytest.fixture
def slow() -> Observer:
    return Observer("slow")


@pytest.fixture
def quick() -> Observer:
    return Observer("quick")


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings, slow: Observer, quick: Observer) -> Iterator[Gateway]:
    plugins = load_plugins(PluginSettings())
    slow.load(plugins)
    quick.load(plugins)
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    gateway.overload.max_lag = 0.0
    yield gateway
    slow.gate.set()
    io_loop.run_sync(gateway.close)


@pytest.mark.xfail(strict=True, reason="hooks run in the event loop's thread")
async def test_hook_that_blocks_delays_no_caller_and_no_other_plugin(
    client: Client, slow: Observer, quick: Observer
) -> None:
    slow.gate.clear()
    async with at_once(within=1.0):
        for _ in range(3):
            response, _ = await client.chat()
            assert response.status == 200
        await until(lambda: len(quick.records) == 3)
    assert not slow.records
    slow.gate.set()
    await until(lambda: len(slow.records) == 3)
    assert slow.records == quick.records


@pytest.mark.xfail(strict=True, reason="hooks run in the event loop's thread")
async def test_each_plugin_has_one_thread_and_gets_its_records_in_order(
    client: Client, slow: Observer, quick: Observer
) -> None:
    ids = [(await client.chat())[0].headers["x-request-id"] for _ in range(5)]
    await until(lambda: len(slow.records) == len(quick.records) == 5)
    assert [record.request_id for record in slow.records] == ids
    assert (len(slow.threads), len(quick.threads)) == (1, 1)
    assert not (slow.threads & quick.threads) and threading.main_thread() not in slow.threads

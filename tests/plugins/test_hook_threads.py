"""The hooks that follow calls run in a thread of each plugin: one that blocks or raises is nobody else's problem."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from gateway import hookimpl
from gateway.billing.call_record import CallRecord
from gateway.billing.usage import Usage
from gateway.config.settings import PluginSettings, Settings
from gateway.plugins import hook_threads
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


def counters(gateway: Gateway) -> dict[str, float]:
    """Records lost, by plugin."""
    lost = gateway.metrics._counters.items()
    return {labels[0]: count for (name, labels), count in lost if name == "gateway_hook_records_lost"}


@pytest.mark.holds("plugins.md#hooks-1")
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


@pytest.mark.holds("plugins.md#hooks-1")
async def test_records_beyond_the_queue_of_a_plugin_are_lost_for_it_counted_and_named(
    client: Client, gateway: Gateway, slow: Observer, quick: Observer,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(hook_threads, "QUEUED", 2)
    slow.gate.clear()
    await client.chat()
    await until(lambda: slow.threads)  # its hook has the first one
    for _ in range(5):
        await client.chat()
        await until(lambda: gateway.hooks._threads["quick"].waiting == 0)
    assert counters(gateway) == {"slow": 3, "quick": 0}
    assert caplog.text.count("plugin slow is too slow in call_settled: 1 records of calls were lost for it") == 1
    slow.gate.set()
    await until(lambda: (len(slow.records), len(quick.records)) == (3, 6))


async def test_each_plugin_has_one_thread_and_gets_its_records_in_order(
    client: Client, slow: Observer, quick: Observer
) -> None:
    ids = [(await client.chat())[0].headers["x-request-id"] for _ in range(5)]
    await until(lambda: len(slow.records) == len(quick.records) == 5)
    assert [record.request_id for record in slow.records] == ids
    assert (len(slow.threads), len(quick.threads)) == (1, 1)
    assert not (slow.threads & quick.threads) and threading.main_thread() not in slow.threads


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(3)])
async def test_hook_that_raises_is_named_and_gets_the_next_record(
    client: Client, slow: Observer, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    slow.fails = error
    await client.chat()
    await client.chat()
    await until(lambda: len(slow.records) == 2)
    message = f"plugin slow raised {type(error).__name__} in call_settled"
    assert await until(lambda: caplog.text.count(message) == 2)


def build(io_loop: IOLoop, store: Store, settings: Settings, *observers: Observer) -> Gateway:
    plugins = load_plugins(PluginSettings())
    for observer in observers:
        observer.load(plugins)
    return io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))


def a_record(number: int) -> CallRecord:
    return CallRecord(str(number), "chat", "a", "k", "m", "p", "ok", 200, Usage(), 0, 0, 0, 1, 0.0, None, False)


def test_shutdown_hook_comes_after_the_records_that_wait(
    io_loop: IOLoop, store: Store, settings: Settings, slow: Observer
) -> None:
    gateway = build(io_loop, store, settings, slow)
    slow.gate.clear()
    for number in range(3):
        gateway.hooks.call_settled(a_record(number))

    async def close() -> None:
        asyncio.get_running_loop().call_later(0.1, slow.gate.set)
        await gateway.close()

    io_loop.run_sync(close)
    assert slow.events == ["settled", "settled", "settled", "shutdown"]


def test_shutdown_does_not_wait_for_a_hook_that_does_not_return(
    io_loop: IOLoop, store: Store, settings: Settings, slow: Observer, quick: Observer,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(hook_threads, "SHUTDOWN_WITHIN", 0.2)
    gateway = build(io_loop, store, settings, slow, quick)
    slow.gate.clear()
    for number in range(3):
        gateway.hooks.call_settled(a_record(number))

    async def close() -> None:
        async with at_once(within=1.5):
            await gateway.close()

    io_loop.run_sync(close)
    slow.gate.set()
    assert quick.events == ["settled", "settled", "settled", "shutdown"]
    assert "plugin slow does not end its hooks within 0.2 s; ending without it" in caplog.text
    assert counters(gateway) == {"slow": 2, "quick": 0}

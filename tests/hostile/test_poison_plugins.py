"""A poisoned plugin hurts nobody: the gateway lives, answers in the right shape, settles once, and names the plugin."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway import Chat, Provider
from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings, Settings
from gateway.ledger import Ledger
from gateway.plugins.loader import Plugins, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.conftest import PEPPER
from tests.polling import at_once, until

from . import poison
from .conftest import Client
from .poison import PROVIDERS, SECRET, Doom, Poison

BALANCE = 10 * NANO
OUT_OF_SERVICE = {"badinit", "exitsininit", "badstart", "doomedstart"}
SOUND = {
    "healthy",
    "plainiterator",
    "blocks",
    "badclose",
    "negativeusage",
    "absurdusage",
    "wrongusage",
    "nousageobject",
}
ENDLESS = {"endless", "endlessrush", "endlessnothing", "deaf"}
BEFORE = {"raisesfirst", "exitsfirst", "doomsfirst", "yieldstext", "yieldsnone", "yieldsdict", "absurdindex"}
BEFORE |= {"negativeindex", "nothing", "notagenerator", "coroutine", "raisesatcall"}
AFTER = {provider.name for provider in PROVIDERS} - OUT_OF_SERVICE - SOUND - ENDLESS - BEFORE
NAMES = {provider.name for provider in PROVIDERS}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """One model per poisoned provider."""
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {name: {"plugin": name} for name in NAMES},
            "models": {name: {"provider": name, "price": {"input": 1, "output": 2}} for name in NAMES},
        },
        demo=True,
    )


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Plugins:
    monkeypatch.setattr(Poison, "stopped", [])
    plugins = load_plugins(PluginSettings())
    poison.load_all(plugins)
    return plugins


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings, plugins: Plugins) -> Iterator[Gateway]:
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    yield gateway
    io_loop.run_sync(gateway.close)


async def assert_settled(accounts: Accounts, ledger: Ledger, *, at_most: int = BALANCE // 100) -> int:
    """Nothing is held, no balance grew, and the books agree; what was charged."""

    async def released() -> bool:
        return (await accounts.show("acme")).held == 0

    await until(released)
    assert (await ledger.audit()).mismatches == []
    charged = BALANCE - (await accounts.show("acme")).balance
    assert 0 <= charged <= at_most
    return charged


def assert_error(body: Any) -> None:
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    assert SECRET not in str(body)


async def assert_alive(client: Client) -> None:
    response, body = await client.chat(model="healthy")
    assert (response.status, body["choices"][0]["message"]["content"]) == (200, "fine")


@pytest.mark.parametrize("name", sorted(BEFORE | OUT_OF_SERVICE))
@pytest.mark.parametrize("stream", [False, True])
async def test_failure_before_the_first_chunk_has_its_http_status(
    client: Client, accounts: Accounts, ledger: Ledger, caplog: pytest.LogCaptureFixture, name: str, stream: bool
) -> None:
    if stream:
        response, text, _ = await client.stream(model=name)
        body = msgspec.json.decode(text)
    else:
        response, body = await client.chat(model=name)
    assert response.status == (503 if name in OUT_OF_SERVICE else 502), body
    assert_error(body)
    await assert_alive(client)
    assert await assert_settled(accounts, ledger) < 100_000  # healthy's own call


@pytest.mark.holds("README.md#model-gateway-2")
@pytest.mark.parametrize("name", sorted(AFTER))
async def test_failure_after_the_first_chunk_ends_the_stream_with_an_error_frame(
    client: Client, accounts: Accounts, ledger: Ledger, name: str
) -> None:
    response, text, failure = await client.stream(model=name)
    assert response.status == 200
    assert failure is not None, "the answer looked whole"
    assert "[DONE]" not in text
    assert SECRET not in text
    frames = [msgspec.json.decode(line[6:]) for line in text.split("\n\n") if line.startswith("data: ")]
    assert_error(frames[-1])
    await assert_alive(client)
    assert await assert_settled(accounts, ledger) > 0


@pytest.mark.parametrize("name", sorted(AFTER))
async def test_the_same_failure_of_a_whole_answer_is_502(
    client: Client, accounts: Accounts, ledger: Ledger, name: str
) -> None:
    response, body = await client.chat(model=name)
    assert response.status == 502, body
    assert_error(body)
    await assert_alive(client)
    await assert_settled(accounts, ledger)


@pytest.mark.parametrize("name", sorted(SOUND))
async def test_invalid_optional_parts_of_a_valid_answer_are_ignored(
    client: Client, accounts: Accounts, ledger: Ledger, name: str
) -> None:
    response, body = await client.chat(model=name)
    assert (response.status, body["choices"][0]["message"]["content"]) == (200, "fine")
    assert all(type(body["usage"][key]) is int and body["usage"][key] >= 0 for key in list(body["usage"])[:3])
    assert await assert_settled(accounts, ledger) > 0
    response, text, failure = await client.stream(model=name, stream_options={"include_usage": True})
    assert (response.status, failure) == (200, None), text
    usage = msgspec.json.decode(text.split("\n\n")[-3][6:])["usage"]
    assert all(type(usage[key]) is int and 0 <= usage[key] < 10**9 for key in list(usage)[:3]), usage
    assert text.endswith("data: [DONE]\n\n")
    assert await assert_settled(accounts, ledger) > 0


@pytest.mark.parametrize("name", sorted(ENDLESS))
async def test_endless_stream_ends_when_its_client_disconnects(
    client: Client, accounts: Accounts, ledger: Ledger, gateway: Gateway, name: str
) -> None:
    document = {"model": name, "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 9999}
    async with client.request("POST", "/v1/chat/completions", json=document) as response:
        assert await response.content.readline()
        await asyncio.wait_for(assert_alive(client), 5.0)  # others have their turn meanwhile
    await until(lambda: name in Poison.stopped)
    await assert_alive(client)
    assert await assert_settled(accounts, ledger) > 0


@pytest.mark.parametrize("name", ["endless", "endlessrush"])
async def test_endless_stream_ends_when_the_balance_is_used_up(
    client: Client, accounts: Accounts, keys: Keys, name: str
) -> None:
    """Also of a provider that ignores max_tokens, whose hold is therefore no bound."""
    await accounts.create("poor", balance=300_000)
    key = await keys.create("poor", name="k")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    response, text, failure = await client.stream(model=name, max_tokens=50)
    assert response.status == 200
    assert failure is not None
    frames = text.rstrip().split("\n\n")
    assert msgspec.json.decode(frames[-1][6:])["error"]["code"] == "credit_balance_exhausted"

    async def released() -> bool:
        return (await accounts.show("poor")).held == 0

    await until(released)
    assert 0 <= (await accounts.show("poor")).balance < 300_000


async def test_blocked_loop_only_delays_other_requests(client: Client, accounts: Accounts, ledger: Ledger) -> None:
    async with at_once(within=3.0):
        answers = await asyncio.gather(client.chat(model="blocks"), *(client.chat(model="healthy") for _ in range(20)))
    assert [response.status for response, _ in answers] == [200] * 21
    await assert_settled(accounts, ledger)


async def test_log_names_the_provider_without_its_exception_message(
    client: Client, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("raisesfirst", "raiseslater", "exitsfirst", "doomslater", "raisesatcall", "yieldstext"):
        caplog.clear()
        await client.stream(model=name, max_tokens=5)
        record = next(record for record in caplog.records if name in record.getMessage())
        assert record.levelno == logging.ERROR


def test_providers_that_cannot_be_created_are_named_in_the_log(
    caplog: pytest.LogCaptureFixture, io_loop: IOLoop, store: Store, settings: Settings, plugins: Plugins
) -> None:
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    told = "\n".join(record.getMessage() for record in caplog.records)
    for name in OUT_OF_SERVICE:
        assert f"provider {name} is out of service" in told
    assert set(gateway.providers) == NAMES - OUT_OF_SERVICE
    io_loop.run_sync(gateway.upstream.close)
    io_loop.run_sync(gateway.active_calls.close)


class NoName(Provider, Chat):
    def stream_chat(self, request: Any, target: Any) -> Any: ...


class Odd(Provider):
    name = 7  # type: ignore[assignment]


class Taken(Poison):
    pass


Taken.name = "openai"


def raising(error: BaseException) -> Any:
    def find() -> Any:
        raise error

    return find


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("x"),
        SystemExit(3),
        Doom("x"),
        ImportError("x"),
        SyntaxError("x"),
        RecursionError(),
        GeneratorExit(),
    ],
)
def test_plugin_that_raises_while_loading_is_reported_and_skipped(error: BaseException) -> None:
    plugins = load_plugins(PluginSettings())
    before = dict(plugins.providers)

    def register_providers(register: Any) -> None:
        register(poison.Healthy)
        raise error

    for find in (raising(error), lambda: poison.plugin("bad", register_providers)):
        report = poison.load(plugins, "bad", find)
        assert report.state == "failed"
        assert type(error).__name__ in report.reason
        assert plugins.providers == before
    assert poison.load(plugins, "good", lambda: poison.plugin("good", lambda register: None)).state == "active"


@pytest.mark.parametrize("garbage", [None, 1, "text", object(), dict, Provider, NoName, Odd, Taken, Poison.__init__])
def test_registered_object_of_a_wrong_type_is_reported_and_skipped(garbage: Any) -> None:
    plugins = load_plugins(PluginSettings())
    before = dict(plugins.providers)
    report = poison.load(plugins, "bad", lambda: poison.plugin("bad", lambda register: register(garbage)))
    assert report.state == "failed"
    assert report.reason
    assert (report.providers, plugins.providers) == ([], before)


@pytest.mark.slow
@pytest.mark.parametrize("module", [None, 5, "text", object()])
def test_entry_point_that_is_not_a_module_is_skipped(module: Any) -> None:
    plugins = load_plugins(PluginSettings())
    report = poison.load(plugins, "odd", lambda: module)
    assert report.state in {"active", "failed"}
    assert not report.providers
    gc.collect()

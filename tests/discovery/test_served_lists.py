"""Models that providers list are served, with real servers that answer as Ollama, vLLM and OpenRouter do."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import NANO
from gateway.billing.price import Price
from gateway.discovery.stored_lists import TURN, list_id, read_list
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing.fake_upstream import Reply
from tests.conftest import PEPPER
from tests.discovery.lists import (
    OLLAMA,
    VLLM,
    ask_again,
    built,
    openrouter_model,
    reasons,
    served,
    serving,
    settings_of,
    state_of,
)
from tests.polling import until

ONE = """
[providers.openrouter]
plugin = "openai"
preset = "openrouter"
base_url = "{openrouter}"
discover = true
"""
LOCAL = """
[providers.ollama]
plugin = "openai"
preset = "ollama"
base_url = "{ollama}"
discover = true
"""


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-1")
async def test_models_of_an_ollama_are_served_only_where_a_pattern_makes_them_free(
    tmp_path: Path, valkey: Path
) -> None:
    async with serving(OLLAMA) as ollama:
        async with built(settings_of(LOCAL, tmp_path, ollama=ollama), valkey) as gateway:
            assert served(gateway) == set()
            assert reasons(gateway) == {"llama3.2:3b": "no_price", "nomic-embed-text:latest": "no_price"}
        free = LOCAL + '[models."local/*"]\nprovider = "ollama"\nmodel = "*"\nfree = true\n'
        async with built(settings_of(free, tmp_path, ollama=ollama), valkey) as gateway:
            assert served(gateway) == {"local/llama3.2:3b", "local/nomic-embed-text:latest"}
            assert gateway.catalog.models["local/nomic-embed-text:latest"].endpoints == {"embeddings"}
            assert gateway.catalog.models["local/llama3.2:3b"].targets[0].target.model == "llama3.2:3b"


async def test_models_of_a_vllm_have_the_price_of_their_pattern(tmp_path: Path, valkey: Path) -> None:
    text = """
[providers.vllm]
plugin = "openai"
preset = "vllm"
base_url = "{vllm}"
discover = true

[models."house/*"]
provider = "vllm"
model = "Qwen/*"
groups = ["team"]
price = { input = 0.1, output = 0.2 }

[groups.team]
"""
    async with serving(VLLM) as vllm, built(settings_of(text, tmp_path, vllm=vllm), valkey) as gateway:
        model = gateway.catalog.models["house/Qwen3-8B"]
        assert (model.price.input, model.price.output) == (NANO // 10, NANO // 5)
        assert (model.groups, model.context_window) == ({"team"}, 40960)


async def test_models_of_openrouter_have_the_price_of_its_list_with_the_markup(tmp_path: Path, valkey: Path) -> None:
    document = {"data": [openrouter_model("acme/large", "0.00000125", "0.00001", input_cache_read="0.000000125")]}
    text = ONE + '[models."openrouter/*"]\nprovider = "openrouter"\nprice = "upstream"\nmarkup = 1.2\n'
    async with (
        serving(document) as openrouter,
        built(settings_of(text, tmp_path, openrouter=openrouter), valkey) as gateway,
    ):
        model = gateway.catalog.models["openrouter/acme/large"]
        price, cost = model.price, model.targets[0].costs[0]
        assert (price.input, price.output, price.cached_input) == (1_500_000_000, 12 * NANO, 150_000_000)
        assert price.reasoning == price.output  # 0 in the list means that it is not told apart
        assert (cost.input, cost.output) == (1_250_000_000, 10 * NANO)
        assert "@" not in price.version  # the first price has no date
        assert (model.context_window, model.max_output_tokens) == (128000, 16384)
        assert await gateway.store.link("prices").call("HGET", "prices", price.version)


async def test_a_discovered_model_is_called_and_charged(tmp_path: Path, valkey: Path) -> None:
    document = {"data": [openrouter_model("acme/large", "0.001", "0.002")]}
    async with (
        serving(document) as openrouter,
        built(settings_of(ONE, tmp_path, openrouter=openrouter), valkey) as gateway,
        Client(gateway) as client,
    ):
        assert await client.models() == ["openrouter/acme/large"]
        gauges = gateway.metrics._gauges
        assert gauges["gateway_discovered_models", ("openrouter", "served")] == 1
        assert gauges["gateway_discovery_last_success_timestamp_seconds", ("openrouter",)] > 0
        assert gateway.metrics._counters["gateway_discovery_questions", ("openrouter", "ok")] == 1
        answer = await client.chat("openrouter/acme/large")
        assert answer.status == 200, await answer.text()
        await until(client.has_paid)
        sent = openrouter.upstream.seen[-1].json
        assert sent["model"] == "acme/large"
        assert (await gateway.ledger.audit()).mismatches == []


@pytest.mark.holds("operations/models.md#who-asks-3")
async def test_a_model_that_leaves_the_list_is_served_to_the_end_of_its_calls(tmp_path: Path, valkey: Path) -> None:
    document = {"data": [openrouter_model("acme/large"), openrouter_model("acme/small")]}
    async with (
        serving(document) as openrouter,
        built(settings_of(ONE, tmp_path, openrouter=openrouter), valkey) as gateway,
        Client(gateway) as client,
    ):
        openrouter.upstream.released.clear()
        running = asyncio.create_task(client.chat("openrouter/acme/large"))
        await until(lambda: any("chat" in seen.path for seen in openrouter.upstream.seen))
        openrouter.list(openrouter_model("acme/small"))
        await ask_again(gateway, "openrouter")
        await until(lambda: served(gateway) == {"openrouter/acme/small"})
        openrouter.upstream.released.set()
        assert (await running).status == 200
        gone = await client.chat("openrouter/acme/large")
        assert (gone.status, (await gone.json())["error"]["code"]) == (403, "model_not_permitted")
        assert (await gateway.ledger.audit()).mismatches == []


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-2")
async def test_a_configured_model_wins_over_a_discovered_one(tmp_path: Path, valkey: Path) -> None:
    text = f"""{ONE}
[models."openrouter/acme/large"]
provider = "openrouter"
model = "other"
price = {{ input = 7, output = 7 }}
"""
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as openrouter,
        built(settings_of(text, tmp_path, openrouter=openrouter), valkey) as gateway,
    ):
        assert gateway.catalog.models["openrouter/acme/large"].price.input == 7 * NANO
        assert reasons(gateway) == {"acme/large": "configured"}


@pytest.mark.holds("operations/models.md#who-asks-2", "operations/models.md#when-a-list-fails-1")
async def test_the_last_good_list_is_served_while_later_questions_fail_and_for_a_day(
    tmp_path: Path, valkey: Path
) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as openrouter,
        built(settings_of(ONE, tmp_path, openrouter=openrouter), valkey) as gateway,
    ):
        for reply, error in (
            (Reply.error(500, "at http://10.0.0.7/ key sk-secret-123456789"), "upstream"),
            (Reply.json({"data": []}), "no models"),
            (Reply(status=302, headers={"Location": "http://127.0.0.1:1/"}), "upstream"),
            (Reply(body=b"<html>"), "upstream"),
            (Reply(body=b'{"data":[' + b" " * 9_000_000), "upstream"),
        ):
            openrouter.reply = reply
            await ask_again(gateway, "openrouter", seconds=700)
            assert served(gateway) == {"openrouter/acme/large"}
            state = await state_of(gateway, "openrouter")
            assert error in state["error"]
            assert "10.0.0.7" not in state["error"] and "sk-secret" not in state["error"]
        openrouter.reply = Reply.error(500, "no")
        await ask_again(gateway, "openrouter", seconds=86_400.0)
        await until(lambda: served(gateway) == set())
        openrouter.list(openrouter_model("acme/small"))
        await ask_again(gateway, "openrouter")
        await until(lambda: served(gateway) == {"openrouter/acme/small"})


@pytest.mark.holds("operations/models.md#who-asks-1")
async def test_several_workers_ask_once_and_serve_the_same(tmp_path: Path, valkey: Path) -> None:
    async with serving({"data": [openrouter_model("acme/large")]}) as openrouter:
        settings = settings_of(ONE, tmp_path, openrouter=openrouter)
        async with built(settings, valkey) as first, built(settings, valkey, empty=False) as second:
            assert served(first) == served(second) == {"openrouter/acme/large"}
            assert openrouter.questions == 1
            openrouter.list(openrouter_model("acme/large", "0.000002", "0.000004"))
            await ask_again(first, "openrouter")
            assert openrouter.questions == 2
            second.lists.look()
            await until(lambda: all(price_in(one).input == 2 * NANO for one in (first, second)))
            assert price_in(first).version == price_in(second).version
            day = datetime.now(UTC).date().isoformat()
            assert price_in(first).version.endswith(f"@{day}")
            own = list_id("openrouter", settings.providers["openrouter"])
            stored = await read_list(first.store, own)
            assert stored is not None
            assert stored.models[0].earlier[0].amounts["input"] == NANO


async def test_workers_that_start_at_once_ask_once(tmp_path: Path, valkey: Path) -> None:
    async with serving({"data": [openrouter_model("acme/large")]}) as openrouter:
        settings = settings_of(ONE, tmp_path, openrouter=openrouter)
        async with built(settings_of("", tmp_path), valkey):  # the store is empty
            stores = [await Store.open(valkey, timeout=20.0) for _ in range(3)]
            gateways = await asyncio.gather(*(Gateway.build(settings, store, pepper=PEPPER) for store in stores))
            assert [served(one) for one in gateways] == [{"openrouter/acme/large"}] * 3
            assert openrouter.questions == 1
            for one in gateways:
                await one.close()


async def test_a_reload_keeps_the_models_of_the_lists(tmp_path: Path, valkey: Path) -> None:
    async with serving({"data": [openrouter_model("acme/large"), openrouter_model("acme/small")]}) as openrouter:
        settings = settings_of(ONE, tmp_path, openrouter=openrouter)
        async with built(settings, valkey) as gateway:
            narrow = settings_of(ONE + 'discover_exclude = ["*/small"]\n', tmp_path, openrouter=openrouter)
            await gateway.reload(narrow)
            assert served(gateway) == {"openrouter/acme/large"}
            assert reasons(gateway) == {"acme/small": "excluded"}
            await gateway.reload(settings_of(ONE.replace("= true", "= false"), tmp_path, openrouter=openrouter))
            assert served(gateway) == set()
            await gateway.reload(settings)
            gateway.lists.look()
            await until(lambda: len(served(gateway)) == 2)


@pytest.mark.holds("operations/models.md#who-asks-2")
async def test_an_instance_with_another_address_never_serves_the_list_of_the_one_before(
    tmp_path: Path, valkey: Path
) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as first,
        serving({"data": [openrouter_model("acme/other")]}) as second,
        built(settings_of(ONE, tmp_path, openrouter=first), valkey) as gateway,
    ):
        await gateway.reload(settings_of(ONE, tmp_path, openrouter=second))
        assert served(gateway) == set()
        await until(lambda: served(gateway) == {"openrouter/acme/other"})


async def test_a_question_while_a_reload_replaces_the_address_writes_no_list_under_the_address_before(
    tmp_path: Path, valkey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as first,
        serving({"data": [openrouter_model("acme/other")]}) as second,
        built(old := settings_of(ONE, tmp_path, openrouter=first), valkey) as gateway,
    ):
        own = list_id("openrouter", old.providers["openrouter"])
        publish = gateway.price_tables.publish
        asking: list[asyncio.Task[None]] = []

        async def published(prices: Any) -> None:
            if not asking:  # the providers are the new ones, and the settings those of before
                await gateway.store.link(TURN + own).call("DEL", TURN + own)
                asking.append(asyncio.create_task(gateway.lists._ask_in_turn(old, "openrouter")))
                await asyncio.wait(asking, timeout=1.0)  # until the answer is written, or waits for the reload
            await publish(prices)

        monkeypatch.setattr(gateway.price_tables, "publish", published)
        await gateway.reload(settings_of(ONE, tmp_path, openrouter=second))
        await asyncio.wait_for(asking[0], 10.0)
        stored = await read_list(gateway.store, own)
        assert stored is not None
        assert [one.name for one in stored.models] == ["acme/large"]
        await until(lambda: served(gateway) == {"openrouter/acme/other"})


@pytest.mark.holds("operations/models.md#prices-of-a-list-over-time-2")
async def test_a_price_that_a_list_changes_is_in_the_audit_trail_once(tmp_path: Path, valkey: Path) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large"), openrouter_model("acme/same")]}) as server,
        built(settings_of(ONE, tmp_path, openrouter=server), valkey) as gateway,
    ):
        server.list(openrouter_model("acme/large", prompt="0.000003"), openrouter_model("acme/same"))
        await ask_again(gateway, "openrouter")
        outbox = AuditOutbox(gateway.store)

        async def told(events: int) -> bool:
            return len(await outbox.read()) == events

        await until(lambda: told(1))
        server.list(openrouter_model("acme/large", prompt="0.00009"), openrouter_model("acme/same"))
        await ask_again(gateway, "openrouter")
        await until(lambda: told(2))
        await ask_again(gateway, "openrouter")
        [(_, changed), (_, refused)] = await outbox.read()
        assert changed is not None and refused is not None
        assert (changed.action, changed.object) == ("discovery.prices", "provider:openrouter")
        assert changed.before == {"prices": {"acme/large": {"input": "1", "output": "2"}}}
        assert changed.after == {"prices": {"acme/large": {"input": "3", "output": "2"}}, "changed": 1}
        assert "more than" in refused.after["prices"]["acme/large"]["not_used"]


def price_in(gateway: Gateway) -> Price:
    """The price of the model in use."""
    return gateway.catalog.models["openrouter/acme/large"].price


class Client:
    """A caller with an account and a key."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __aenter__(self) -> Client:
        accounts = Accounts(self._gateway.store, self._gateway.ledger)
        await accounts.create("acme", balance=1000 * NANO)
        key = await Keys(self._gateway.store, PEPPER).create("acme", name="test")
        self._server = HTTPServer(self._gateway.application(), ServerLimits())
        listener = socket.create_server(("127.0.0.1", 0))
        self._port = listener.getsockname()[1]
        await self._server.start(listener)
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {key.text}"})
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._session.close()
        self._server.close_listener()
        await self._server.drain(2.0)

    async def has_paid(self) -> bool:
        """Whether a call was charged."""
        account = await Accounts(self._gateway.store, self._gateway.ledger).show("acme")
        return account.balance < 1000 * NANO and not account.held

    async def models(self) -> list[str]:
        """The ids of `GET /v1/models`."""
        async with self._session.get(f"http://127.0.0.1:{self._port}/v1/models") as answer:
            return [one["id"] for one in (await answer.json())["data"]]

    async def chat(self, model: str) -> aiohttp.ClientResponse:
        """The answer to a chat."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}
        answer = await self._session.post(f"http://127.0.0.1:{self._port}/v1/chat/completions", json=body)
        await answer.read()
        return answer

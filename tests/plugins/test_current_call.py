"""A provider knows whose call it serves, in the tasks that the call starts too, and nothing of it outside of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import ClassVar

import pytest
from msgspec import structs
from tornado.ioloop import IOLoop

from gateway import Chat, ChatChunk, ChatRequest, CurrentCall, Provider, Target, current_call, hookimpl
from gateway.billing.call_record import CallRecord
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings, Settings
from gateway.errors import UpstreamOverloaded
from gateway.plugins.loader import PluginReport, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.api.conftest import Client, client
from tests.conftest import PEPPER
from tests.polling import until

__all__ = ["client"]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Asking(Provider, Chat):
    """Notes the current call where it starts, in each call, and in a task of each call."""

    name = "asking"
    seen: ClassVar[list[CurrentCall | None]] = []

    async def start(self) -> None:
        self.seen.append(current_call())

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        async def apart() -> None:
            self.seen.append(current_call())

        self.seen.append(current_call())
        await asyncio.create_task(apart())
        if target.model == "full":
            raise UpstreamOverloaded(detail="the queue is full")
        if target.model == "slow":
            await asyncio.Event().wait()  # silent until it is cancelled
        yield ChatChunk.text("Hello")
        yield ChatChunk.finish("stop")


@pytest.fixture
def settings() -> Settings:
    provider = {"plugin": "asking", "forward_headers": ["x-team"]}
    model = {"provider": "asking", "model": "any", "price": {"input": 1, "output": 2}, "retries": 0}
    slow, quick = ({"provider": "asking", "model": name} for name in ("slow", "quick"))
    hedged = {"targets": [slow, quick], "hedge_after": 0.01, "retries": 1, "free": True, "strategy": "in_order"}
    return parse(
        {
            "server": {"tags": ["team"]},
            "providers": {"asking": provider},
            "models": {"m1": model, "full": {**model, "model": "full"}, "hedged": hedged},
        },
        demo=True,
    )


@pytest.fixture
def records() -> list[CallRecord]:
    return []


@pytest.fixture
def gateway(
    io_loop: IOLoop, store: Store, settings: Settings, records: list[CallRecord], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gateway]:
    module = ModuleType("asking")
    module.register_providers = hookimpl(lambda register: register(Asking))  # type: ignore[attr-defined]
    module.call_settled = hookimpl(lambda record: records.append(record))  # type: ignore[attr-defined]
    monkeypatch.setattr(Asking, "seen", [])
    plugins = load_plugins(PluginSettings())
    plugins.load(PluginReport(name="asking", version="0", source="test"), lambda: module)
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    yield gateway
    io_loop.run_sync(gateway.close)


async def ask(client: Client, model: str, *, stream: bool = False, headers: dict[str, str] | None = None) -> str:
    """The request id of a chat call."""
    document = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    sent = {**client.headers, **(headers or {})}
    async with client.request("POST", "/v1/chat/completions", headers=sent, json=document) as response:
        await response.read()
        return response.headers["x-request-id"]


@pytest.mark.holds("plugins.md#whose-call-it-is-1")
@pytest.mark.parametrize("stream", [False, True])
async def test_provider_knows_whose_call_it_serves(client: Client, records: list[CallRecord], stream: bool) -> None:
    headers = {"x-session-id": "talk-1", "x-gateway-tags": "team=herons", "x-team": "7", "traceparent": TRACE}
    request_id = await ask(client, "m1", stream=stream, headers=headers)
    outside, *calls = Asking.seen
    assert outside is None
    [call] = set(map(str, calls))
    assert len(calls) == 2
    found = calls[0]
    assert found is not None
    record = await until(lambda: next(iter(records), None))
    assert (found.request_id, found.account, found.key) == (request_id, record.account, record.key)
    assert (found.user, found.model, found.session) == (record.user, "m1", "talk-1")
    assert found.tags == {"team": "herons"}
    assert found.headers == {"x-team": "7", "traceparent": TRACE}
    assert "sk-" not in call


@pytest.mark.usefixtures("gateway")
async def test_both_attempts_of_a_hedge_know_their_call(client: Client) -> None:
    request_id = await ask(client, "hedged")
    calls = [call.request_id for call in Asking.seen if call is not None]
    assert calls == [request_id] * 4


async def test_next_call_on_a_connection_is_another_one(client: Client) -> None:
    first, second = await ask(client, "m1", headers={"x-session-id": "a"}), await ask(client, "m1")
    found = [(call.request_id, call.session) for call in Asking.seen if call is not None]
    assert found == [(first, "a"), (first, "a"), (second, ""), (second, "")]


async def test_record_has_price_credential_and_the_error_that_ended_the_call(
    client: Client, gateway: Gateway, records: list[CallRecord]
) -> None:
    await ask(client, "m1")
    await ask(client, "full")
    await until(lambda: len(records) == 2)
    served, failed = records
    price = gateway.catalog.models["m1"].price
    assert (served.error, served.price_version, served.credential) == ("", price.version, 1)
    assert price.version
    assert "the queue is full" in failed.error
    assert (failed.outcome, failed.credential) == (failed.outcome, 1)
    assert structs.asdict(served)["error"] == ""

"""The gateway's clock ends calls: whatever a provider waits for, and whatever it does with a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import msgspec
import pytest
from tornado.ioloop import IOLoop

from gateway import (
    Chat,
    ChatChunk,
    Provider,
    Speech,
    SpeechChunk,
)
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings, Settings
from gateway.errors import Draining, UpstreamUnreachable
from gateway.ledger import Ledger
from gateway.plugins.loader import load_plugins
from gateway.routing import stuck_tasks
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream
from gateway.testing.chat_script import ChatScript
from tests.conftest import PEPPER
from tests.delays import caller_is_silent_for, forever, provider_takes
from tests.hostile.poison import load, plugin
from tests.ledger_lines import last_line
from tests.polling import at_once, until

from .conftest import Client

pytestmark = pytest.mark.slow

BALANCE = 10 * NANO
LIMIT = 0.4  # seconds: the timeout that each model has, while its others are longer
PRICE = {"input": 10, "output": 100}


class Slow(Provider, Chat, Speech):
    """Says what its model is called for, and waits where that says."""

    name = "slow"
    speech_formats = frozenset({"pcm"})
    over: ClassVar[bool] = False  # the test is: what ignores cancellations ends
    begun: ClassVar[list[str]] = []  # models of the attempts

    async def stream_chat(self, request: Any, target: Any) -> AsyncIterator[Any]:
        self.begun.append(target.model)
        try:
            async for chunk in self.chunks(target.model):
                yield chunk
        finally:
            if "closing" in target.model:
                await self.wait(target.model)

    async def chunks(self, place: str) -> AsyncIterator[Any]:
        if "first" in place:
            await self.wait(place)
        yield ChatChunk.text("one ")
        yield ChatChunk.text("two ")
        while "steady" in place:
            await provider_takes(LIMIT / 4)
            yield ChatChunk.text("on ")
        for _ in range(200 if "much" in place else 0):
            yield ChatChunk.text("x" * 65_536)
        if "two" in place:
            await self.wait(place)
        yield ChatChunk.finish("stop")
        if "finish" in place:
            await self.wait(place)

    async def speak(self, request: Any, target: Any) -> AsyncIterator[SpeechChunk]:
        if "first" in target.model:
            await self.wait(target.model)
        yield SpeechChunk(b"\0" * 4800)
        await self.wait(target.model)

    async def wait(self, model: str) -> None:
        if "deaf" in model:
            while not self.over:
                try:
                    await provider_takes(0.05)
                except asyncio.CancelledError:
                    continue
        elif "retries" in model:
            try:
                await forever()
            except asyncio.CancelledError:
                raise UpstreamUnreachable(detail="it lost its connection") from None
        elif "answers" in model:
            with suppress(asyncio.CancelledError):
                await forever()
        else:
            await forever()


PLACES = ("first", "two", "finish", "closing")
KINDS = ("", " deaf", " retries")


def model(target: str, timeout: str = "idle", **fields: Any) -> dict[str, Any]:
    """A model of `Slow` with one short timeout; `idle` is also that of the first chunk."""
    limits = {"idle_timeout": 30, "first_byte_timeout": 30, "total_timeout": 30}
    short = ("idle_timeout", "first_byte_timeout") if timeout == "idle" else ("total_timeout",)
    endpoint = "speech" if "speak" in target else "chat"
    return {
        **({"provider": "slow", "model": target} if "targets" not in fields else {}),
        "endpoints": [endpoint],
        "price": PRICE if endpoint == "chat" else {"per_second_out": "0.01"},
        "retries": 0,
        **limits,
        **dict.fromkeys(short, LIMIT),
        **fields,
    }


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models of the slow provider, and one on a scriptable upstream."""
    chats = {
        f"{place}{kind} {timeout}": model(place + kind, timeout)
        for place in PLACES
        for kind in KINDS
        for timeout in ("idle", "total")
    }
    sounds = {
        f"speak {place}{kind}": model(f"speak {place}{kind}") for place in ("first", "later") for kind in ("", " deaf")
    }
    two = [{"provider": "slow", "model": "first"}, {"provider": "slow", "model": "whole"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"slow": {"plugin": "slow"}, "up": {"plugin": "openai", "base_url": upstream.base_url}},
            "groups": {"default": {}},
            "models": {
                **chats,
                **sounds,
                "steady": model("steady"),
                "steady total": model("steady", "total"),
                "much": model("much", price={"input": 1, "output": 0}),
                "answers": model("two answers", idle_timeout=30, first_byte_timeout=30),
                "patient": model("two retries", idle_timeout=30, first_byte_timeout=30, retries=2),
                "two deaf patient": model("two deaf", idle_timeout=30, first_byte_timeout=30),
                "two targets": model("", targets=two, retries=1, strategy="in_order"),
                "m1": {**model("m1"), "provider": "up"},
            },
        },
        demo=True,
    )


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setattr(Slow, "over", False)
    monkeypatch.setattr(Slow, "begun", [])
    plugins = load_plugins(PluginSettings())
    load(plugins, "slow", lambda: plugin("slow", lambda register: register(Slow)))
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    gateway.overload.max_lag = 0.0
    yield gateway
    Slow.over = True
    io_loop.run_sync(lambda: until(lambda: not gateway.dispatcher.stuck))
    io_loop.run_sync(gateway.close)


async def released(accounts: Accounts) -> Any:
    account = await accounts.show("acme")
    return account if account.held == 0 else None


async def assert_charged(accounts: Accounts, ledger: Ledger, *, tokens: int | None) -> None:
    """Nothing is held, the books agree, and so many tokens of output were charged; None: nothing at all."""
    account = await until(lambda: released(accounts))
    assert (await ledger.audit()).mismatches == []
    if tokens is None:
        assert account.balance == BALANCE
    else:
        charged = BALANCE - account.balance
        assert tokens * 100_000 < charged <= tokens * 100_000 + 40 * 10_000  # and the prompt


def error_of(text: str) -> str:
    """The code in an error body or in the last frame of a stream."""
    last = text.strip().split("\n\n")[-1].removeprefix("data: ")
    return str(msgspec.json.decode(last)["error"]["code"])


@pytest.mark.holds("plugins.md#timeouts-and-cancellation-1")
@pytest.mark.parametrize("timeout", ["idle", "total"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
async def test_stream_ends_within_a_second_of_its_timeout_wherever_its_provider_waits(
    client: Client, accounts: Accounts, ledger: Ledger, place: str, kind: str, timeout: str
) -> None:
    async with at_once(within=LIMIT + 1.0):
        asking = asyncio.create_task(client.stream(model=f"{place}{kind} {timeout}", max_tokens=50))
        await until(asking.done)
        response, text, failure = await asking
        await until(lambda: released(accounts))
    assert error_of(text) == "upstream_timeout"
    assert "[DONE]" not in text
    assert (response.status, failure is None) == ((504, True) if place == "first" else (200, False))
    await assert_charged(accounts, ledger, tokens=None if place == "first" else 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_whole_answer_ends_within_a_second_of_the_total_timeout_and_costs_nothing(
    client: Client, accounts: Accounts, ledger: Ledger, kind: str
) -> None:
    async with at_once(within=LIMIT + 1.0):
        asking = asyncio.create_task(client.chat(model=f"two{kind} total", max_tokens=50))
        await until(asking.done)
    response, body = await asking
    assert (response.status, body["error"]["code"]) == (504, "upstream_timeout")
    await assert_charged(accounts, ledger, tokens=None)


@pytest.mark.parametrize("kind", ["", " deaf"])
@pytest.mark.parametrize("place", ["first", "later"])
async def test_speech_ends_within_a_second_of_its_timeout(
    client: Client, accounts: Accounts, place: str, kind: str
) -> None:
    async def speak() -> int:
        document = {"model": f"speak {place}{kind}", "input": "Hi", "voice": "v", "response_format": "pcm"}
        async with client.request("POST", "/v1/audio/speech", json=document) as response:
            try:
                await response.read()
            except aiohttp.ClientError:
                return -response.status
            return response.status

    async with at_once(within=LIMIT + 1.0):
        asking = asyncio.create_task(speak())
        await until(asking.done)
        account = await until(lambda: released(accounts))
    assert await asking == (504 if place == "first" else -200)
    assert (account.balance == BALANCE) == (place == "first")


async def test_attempt_without_a_first_chunk_in_time_is_followed_by_another_target(
    client: Client, accounts: Accounts, ledger: Ledger
) -> None:
    response, text, failure = await client.stream(model="two targets", max_tokens=50)
    assert (response.status, failure, text.endswith("data: [DONE]\n\n")) == (200, None, True)
    assert Slow.begun == ["first", "whole"]
    await assert_charged(accounts, ledger, tokens=2)


async def test_stream_that_is_never_silent_ends_at_its_total_timeout_only(client: Client, accounts: Accounts) -> None:
    asking = asyncio.create_task(client.stream(model="steady", max_tokens=5000))
    async with at_once(within=LIMIT + 1.0):
        _, text, _ = await client.stream(model="steady total", max_tokens=5000)
        assert error_of(text) == "upstream_timeout"
    await caller_is_silent_for(LIMIT)
    assert not asking.done()
    asking.cancel()
    await until(lambda: released(accounts))


async def test_upstream_that_sends_comments_is_not_silent(client: Client, upstream: FakeUpstream) -> None:
    reply = ChatScript(text="one two").stream(interval=LIMIT / 4)
    assert reply.frames is not None
    reply.frames[2:2] = [b": ping\n\n"] * 12  # after the first word
    upstream.enqueue(reply)
    _, text, failure = await client.stream(model="m1", max_tokens=50)
    assert (failure, text.endswith("data: [DONE]\n\n")) == (None, True)


async def test_time_in_which_the_caller_does_not_read_is_not_that_of_the_provider(
    client: Client, gateway: Gateway
) -> None:
    document = {"model": "much", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with client.request("POST", "/v1/chat/completions", json=document, read_bufsize=1024) as response:
        await until(lambda: any(call.chunks > 2 and not call.asked_at for call in gateway.active_calls.calls.values()))
        await caller_is_silent_for(3 * LIMIT)
        text = await response.text()
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_caller_who_leaves_a_provider_that_ignores_it_frees_the_hold_within_a_second(
    client: Client, gateway: Gateway, accounts: Accounts, ledger: Ledger, stream: bool
) -> None:
    ask = client.stream if stream else client.chat
    asking = asyncio.create_task(ask(model="two deaf patient", max_tokens=50))
    await until(lambda: Slow.begun)
    await until(lambda: not stream or any(call.chunks > 1 for call in gateway.active_calls.calls.values()))
    async with at_once(within=1.0):
        asking.cancel()
        await until(lambda: released(accounts))
    assert (await ledger.audit()).mismatches == []
    assert (await accounts.show("acme")).balance < BALANCE


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_call_ends_at_once_though_its_provider_turns_the_cancellation_into_a_failure(
    client: Client, gateway: Gateway, accounts: Accounts, stream: bool
) -> None:
    ask = client.stream if stream else client.chat
    asking: asyncio.Task[Any] = asyncio.create_task(ask(model="patient", max_tokens=50))
    await until(lambda: Slow.begun)
    await until(lambda: not stream or any(call.chunks > 1 for call in gateway.active_calls.calls.values()))
    async with at_once(within=1.0):
        gateway.active_calls.cut_all(Draining())
        await until(asking.done)
        await until(lambda: released(accounts))
    answer = (await asking)[1]
    assert (error_of(answer) if stream else answer["error"]["code"]) == "service_unavailable"
    assert Slow.begun == ["two retries"], "it was tried again"


async def test_cut_call_is_not_answered_though_its_provider_answers_the_cancellation(
    client: Client, gateway: Gateway, accounts: Accounts, ledger: Ledger
) -> None:
    asking = asyncio.create_task(client.chat(model="answers", max_tokens=50))
    await until(lambda: Slow.begun)
    gateway.active_calls.cut_all(Draining())
    response, body = await asking
    assert (response.status, body["error"]["code"]) == (503, "service_unavailable")
    await assert_charged(accounts, ledger, tokens=None)


async def test_call_that_ends_without_its_task_has_its_access_line_and_its_line_in_the_ledger(
    client: Client, gateway: Gateway, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[Any] = []
    monkeypatch.setattr(gateway.access_log, "write", lines.append)
    response, _, _ = await client.stream(model="two deaf idle", max_tokens=50)
    assert [(line.outcome, line.tokens_out, line.provider) for line in lines] == [("upstream_timeout", 2, "slow")]
    assert "yielded nothing for 0.4 s" in lines[0].detail
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.json_form()["outcome"] == "upstream_timeout"


@pytest.mark.holds("plugins.md#timeouts-and-cancellation-1")
async def test_provider_that_does_not_end_cancelled_calls_is_counted_named_and_quarantined(
    client: Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stuck_tasks, "STUCK_AFTER", 0.1)
    for _ in range(5):
        await client.stream(model="two deaf idle", max_tokens=50)
    await until(lambda: {circuit.cause for circuit in gateway.health.all()} & {"plugin"})
    assert gateway.metrics._counters["gateway_stuck_tasks", ("slow",)] == 5
    assert "provider slow does not end a call 0.1 s after it was cancelled" in caplog.text

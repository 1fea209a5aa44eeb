"""Callers who leave: when the upstream is closed, what is read on without them, and what they pay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.chat_script import ChatScript
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import at_once, until

PRICE = {"input": 100, "output": 1000}
TOKEN = NANO // 1000  # of output
MODULE = "gateway.inference.disconnects"


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, deaf: str) -> Settings:
    """A model per policy, and models with a target whose connect hangs."""
    model = {"provider": "up", "price": PRICE, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "up": {"plugin": "openai", "base_url": upstream.base_url},
                **{name: {"plugin": "openai", "base_url": deaf} for name in ("deaf", "deaf-too")},
            },
            "groups": {"default": {}},
            "models": {
                "auto": model,
                "drain": {**model, "disconnect": "drain"},
                "void": {**model, "disconnect": "void"},
                "delivered": {**model, "model": "gpt-5-mini", "disconnect": "delivered"},
                "retried": {**model, "disconnect": "drain", "retries": 1},
                **{
                    f"continued-{policy}": {
                        "targets": [{"provider": "up"}, {"provider": "deaf"}],
                        "strategy": "in_order",
                        "price": PRICE,
                        "continue_cut": True,
                        "disconnect": policy,
                    }
                    for policy in ("drain", "delivered")
                },
                "hedged": {
                    "targets": [{"provider": "deaf"}, {"provider": "deaf-too"}],
                    "price": PRICE,
                    "hedge_after": 0.01,
                    "disconnect": "drain",
                },
            },
        },
        demo=True,
    )


@asynccontextmanager
async def leaving(client: Client, model: str, text: bytes, gateway: Gateway | None = None) -> AsyncIterator[str]:
    """The request id of a stream whose caller has left after it had read `text`, and after the finish in `gateway`."""
    document = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 900}
    async with client.request("POST", "/v1/chat/completions", json=document) as response:
        received = b""
        while text not in received:
            received += await response.content.readany()
        request_id = response.headers["x-request-id"]
        if gateway is not None:
            call = gateway.active_calls.calls[request_id]
            await until(lambda: call.encoder.finished)
        response.close()
    yield response.headers["x-request-id"]


async def charged(ledger: Ledger, request_id: str) -> Any:
    """The meta of the call's ledger line."""
    return (await until(lambda: last_line(ledger, "acme", request_id))).meta


def silent(script: ChatScript) -> Reply:
    """The content, and then nothing."""
    return structs.replace(script, until="content", end="silence").stream()


# Closed at once ------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#leaving-early-1", "prices.md#leaving-early-6")
@pytest.mark.parametrize("model", ["auto", "void", "delivered"])
async def test_upstream_of_a_caller_who_left_is_closed_at_once(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    upstream.enqueue(silent(ChatScript()))
    async with leaving(client, model, b"three"), at_once():
        assert (await upstream.wait_ended()).outcome == "left"


@pytest.mark.holds("prices.md#leaving-early-3")
async def test_usage_that_comes_after_the_end_of_the_answer_is_charged(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(ChatScript(hidden_reasoning=500).stream(interval=0.15))
    async with leaving(client, "auto", b"three", gateway) as request_id:
        meta = await charged(ledger, request_id)
    assert (meta["usage"]["out_text"], meta["usage"]["out_reasoning"]) == (3, 500)
    assert (meta["outcome"], meta.get("estimated", False)) == ("client_closed", False)


@pytest.mark.holds("prices.md#leaving-early-2")
async def test_upstream_that_sends_no_usage_after_the_end_is_closed_and_the_delivered_part_is_charged(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.USAGE_WITHIN", 0.2)
    upstream.enqueue(ChatScript(until="finish", end="silence").stream())
    async with leaving(client, "auto", b"three", gateway) as request_id, at_once(within=1.0):
        assert (await upstream.wait_ended()).outcome == "left"
    meta = await charged(ledger, request_id)
    assert (meta["usage"]["out_text"], meta["estimated"]) == (4, True)


# Read on -------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#leaving-early-5")
async def test_usage_of_a_drained_answer_is_charged_with_its_hidden_reasoning(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(ChatScript(hidden_reasoning=500).stream(interval=0.05))
    async with leaving(client, "drain", b"one") as request_id:
        meta = await charged(ledger, request_id)
    assert (meta["usage"]["out_text"], meta["usage"]["out_reasoning"]) == (3, 500)
    assert upstream.seen[0].outcome == "answered"


@pytest.mark.holds("prices.md#leaving-early-5")
async def test_drain_without_usage_is_charged_by_its_time_and_the_usual_rate(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.DRAIN_WITHIN", 0.5)
    gateway.disconnects._rates["up", "drain"] = 100.0
    upstream.enqueue(silent(ChatScript()))
    async with leaving(client, "drain", b"three") as request_id, at_once(within=2.0):
        assert (await upstream.wait_ended()).outcome == "left"
    meta = await charged(ledger, request_id)
    assert 50 <= meta["usage"]["out_text"] < 900
    assert meta["estimated"]


@pytest.mark.holds("prices.md#leaving-early-5")
async def test_drain_without_usage_is_charged_at_most_the_hold(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.DRAIN_WITHIN", 0.1)
    gateway.disconnects._rates["up", "drain"] = 1e6
    upstream.enqueue(silent(ChatScript()))
    async with leaving(client, "drain", b"three") as request_id:
        line = await until(lambda: last_line(ledger, "acme", request_id))
    assert line.meta["hold"] - TOKEN < -line.amount <= line.meta["hold"]


async def test_rate_of_a_target_is_learnt_from_its_answers(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    upstream.answer = ChatScript(hidden_reasoning=500).answer
    await client.stream(model="drain", max_tokens=900)
    await until(lambda: gateway.disconnects._rates)
    assert gateway.disconnects._rates["up", "drain"] > 50


@pytest.mark.holds("prices.md#leaving-early-4")
async def test_account_has_at_most_eight_drains_at_once(
    client: Client, gateway: Gateway, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.answer = lambda _: silent(ChatScript())
    for number in range(9):
        async with leaving(client, "drain", b"three"):
            await until(lambda number=number: len(gateway.disconnects._rests) == min(number + 1, 8))
    assert (await upstream.wait_ended(8)).outcome == "left"
    assert [seen.outcome for seen in upstream.seen[:8]] == ["open"] * 8
    gateway.disconnects.stop()
    await until(lambda: not gateway.disconnects._rests)


@pytest.mark.holds("prices.md#leaving-early-4")
async def test_drains_end_when_the_worker_stops_and_none_begins_after(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.answer = lambda _: silent(ChatScript())
    async with leaving(client, "drain", b"three") as request_id:
        await until(lambda: gateway.disconnects._rests)
        gateway.disconnects.stop()
        async with at_once():
            assert (await upstream.wait_ended()).outcome == "left"
    assert (await charged(ledger, request_id))["estimated"]
    async with leaving(client, "drain", b"three"), at_once():
        assert (await upstream.wait_ended(1)).outcome == "left"


@pytest.mark.holds("prices.md#leaving-early-9")
async def test_concurrency_lease_ends_when_the_caller_leaves_although_the_answer_is_drained(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    text = (await keys.create("acme", concurrency=1)).text
    client.headers = {**client.headers, "Authorization": f"Bearer {text}"}
    upstream.answer = lambda _: silent(ChatScript())
    async with leaving(client, "drain", b"three"):
        await until(lambda: gateway.disconnects._rests)
        await gateway.active_calls.renew_leases()
        upstream.answer = ChatScript().answer
        response, _ = await client.chat(model="auto")
    assert response.status == 200
    assert upstream.seen[0].outcome == "open"
    gateway.disconnects.stop()
    await until(lambda: not gateway.disconnects._rests)


async def test_call_that_nobody_left_keeps_its_lease_when_leases_are_renewed(
    client: Client, gateway: Gateway, upstream: FakeUpstream, keys: Keys
) -> None:
    text = (await keys.create("acme", concurrency=1)).text
    client.headers = {**client.headers, "Authorization": f"Bearer {text}"}
    upstream.enqueue(silent(ChatScript()))
    asking = asyncio.create_task(client.stream(model="auto"))
    await upstream.wait_started()
    await gateway.active_calls.renew_leases()
    response, _ = await client.chat(model="auto")
    assert response.status == 429
    asking.cancel()


@pytest.mark.holds("prices.md#leaving-early-5")
async def test_whole_answer_that_is_drained_without_a_result_is_charged_by_its_time(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{MODULE}.DRAIN_WITHIN", 0.5)
    gateway.disconnects._rates["up", "drain"] = 100.0
    upstream.enqueue(Reply.silence())
    asking = asyncio.create_task(client.chat(model="drain", max_tokens=900))
    await upstream.wait_started()
    asking.cancel()
    await until(lambda: gateway.disconnects._rests)
    await until(lambda: not gateway.disconnects._rests)
    [line] = await until(lambda: uses(ledger))
    assert 50 <= line.meta["usage"]["out_text"] < 900
    assert line.meta["estimated"]


@pytest.mark.holds("prices.md#leaving-early-11")
async def test_drained_answer_whose_upstream_fails_before_any_content_costs_nothing(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(structs.replace(Reply.error(500, "no"), delay=0.2))
    asking = asyncio.create_task(client.chat(model="drain", max_tokens=900))
    await upstream.wait_started()
    asking.cancel()
    await until(lambda: gateway.disconnects._rests)
    await until(lambda: not gateway.disconnects._rests)
    await gateway.settlement.drain()
    assert (await accounts.show("acme")).balance == 10 * NANO


@pytest.mark.holds("prices.md#leaving-early-10")
@pytest.mark.parametrize("stream", [True, False])
async def test_no_attempt_is_started_for_a_caller_who_has_left(
    client: Client, gateway: Gateway, upstream: FakeUpstream, accounts: Accounts, stream: bool
) -> None:
    upstream.enqueue(structs.replace(Reply.error(500, "no"), delay=0.3))
    upstream.answer = ChatScript(text="word " * 300).answer
    send = client.stream if stream else client.chat
    asking = asyncio.create_task(send(model="retried", max_tokens=900))
    await upstream.wait_started()
    asking.cancel()
    await until(lambda: gateway.disconnects._rests)
    await until(lambda: not gateway.disconnects._rests)
    await gateway.settlement.drain()
    charged = 10 * NANO - (await accounts.show("acme")).balance
    assert (len(upstream.seen), charged) == (1, 0)


@pytest.mark.holds("prices.md#leaving-early-10")
@pytest.mark.parametrize("stream", [True, False])
async def test_drain_does_not_begin_while_both_attempts_of_a_hedge_connect(
    client: Client, gateway: Gateway, accounts: Accounts, stream: bool
) -> None:
    send = client.stream if stream else client.chat
    asking = asyncio.create_task(send(model="hedged", max_tokens=900))
    calls = gateway.active_calls._calls
    await until(lambda: any(len(call.attempts) == 2 for call in calls.values()))
    asking.cancel()
    async with at_once():
        await until(lambda: not calls)
    await gateway.settlement.drain()
    assert (await accounts.show("acme")).balance == 10 * NANO


@pytest.mark.holds("prices.md#leaving-early-10")
@pytest.mark.parametrize("policy", ["drain", "delivered"])
async def test_delivered_part_is_charged_if_the_caller_leaves_while_a_continuation_connects(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, policy: str
) -> None:
    upstream.enqueue(ChatScript(text="one two three", until="content", end="cut").stream())
    calls = gateway.active_calls._calls
    asking = asyncio.create_task(client.stream(model=f"continued-{policy}", max_tokens=900))
    connecting = await until(lambda: next((call for call in calls.values() if len(call.attempts) == 2), None))
    asking.cancel()
    async with at_once():
        await until(lambda: not calls)
    meta = await charged(ledger, connecting.request_id)
    assert (meta["usage"]["out_text"], meta["estimated"], meta["attempts"]) == (4, True, 2)
    assert meta["provider"] == "up"


async def uses(ledger: Ledger) -> list[Any]:
    """The charges of the account."""
    return [line async for line in ledger.lines("acme") if line.kind == "use"]

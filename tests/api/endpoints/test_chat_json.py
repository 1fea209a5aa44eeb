"""`POST /v1/chat/completions` without a stream: what goes up, what comes down, what is charged."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.ledger import Ledger
from gateway.metrics import MetricsDelta, Totals
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import at_once, until


def completion(message: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """An upstream's answer."""
    return {
        "id": "upstream-id",
        "object": "chat.completion",
        "created": 1,
        "model": "upstream-m1",
        "choices": [
            {"index": 0, "message": message or {"role": "assistant", "content": "Four."}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 17, "completion_tokens": 2, "total_tokens": 19},
        **fields,
    }


async def test_answer_carries_the_gateways_id_and_the_public_model_name(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(completion()))
    response, answer = await client.chat()
    assert response.status == 200
    assert re.fullmatch(r"chatcmpl-[A-Za-z0-9]{29}", answer["id"])
    assert answer["model"] == "m1"
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Four.", "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"]["total_tokens"] == 19
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "audio_tokens": 0}
    assert response.headers["Content-Type"] == "application/json"
    assert re.fullmatch(r"req_[0-9a-f]{32}", response.headers["x-request-id"])
    assert response.headers["openai-version"] == "2020-10-01"
    assert response.headers["openai-organization"] == "acme"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cache-Control"] == "no-store"
    assert int(response.headers["openai-processing-ms"]) >= 0


async def test_upstream_gets_every_field_its_own_model_name_and_the_operators_key(
    client: Client, upstream: FakeUpstream
) -> None:
    await client.chat(temperature=0.5, seed=7, custom_field={"deep": [1, 2]}, metadata={"a": "b"})
    seen = upstream.seen[0]
    assert seen.json["model"] == "upstream-m1"
    assert seen.json["temperature"] == 0.5
    assert seen.json["seed"] == 7
    assert seen.json["custom_field"] == {"deep": [1, 2]}
    assert seen.headers["authorization"] == "Bearer sk-upstream-canary-0123456789"


async def test_caller_cannot_send_an_address_or_a_credential_upstream(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await client.chat(api_base="http://evil", api_key="sk-evil", extra_headers={"x": "y"})
    assert response.status == 200
    assert not {"api_base", "api_key", "extra_headers"} & upstream.seen[0].json.keys()
    assert "api_base" in response.headers["x-gateway-dropped-params"]


async def test_charge_is_the_upstreams_usage_at_the_models_price(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.json(completion()))
    response, _ = await client.chat()
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -(17 * 1 + 2 * 2) * NANO // 1_000_000
    account = await accounts.show("acme")
    assert account.balance == 10 * NANO + line.amount
    assert account.held == 0


@pytest.mark.holds("prices.md#counts-of-upstreams-1")
async def test_missing_usage_is_estimated_and_marked(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(Reply.json(completion(usage=None)))
    response, answer = await client.chat()
    assert response.headers["x-gateway-estimated"] == "true"
    assert answer["usage"]["prompt_tokens"] > 0
    assert answer["usage"]["completion_tokens"] == 2
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["estimated"]
    assert line.amount < 0


@pytest.mark.holds("prices.md#counts-of-upstreams-2")
@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -5, "completion_tokens": -1, "total_tokens": -6},
        {"prompt_tokens": 10**18, "completion_tokens": 10**18, "total_tokens": 10**18},
        {"prompt_tokens": "many", "completion_tokens": "more", "total_tokens": "all"},
        "nonsense",
    ],
)
async def test_impossible_usage_neither_credits_nor_empties_an_account(
    client: Client, upstream: FakeUpstream, ledger: Ledger, usage: Any
) -> None:
    upstream.enqueue(Reply.json(completion(usage=usage)))
    response, _ = await client.chat()
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert -NANO // 100 < line.amount < 0
    assert line.meta["estimated"]


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-1")
async def test_upstream_error_is_mapped_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.error(401, "Incorrect API key provided: sk-upstream-canary-0123456789"))
    response, answer = await client.chat()
    assert response.status == 502
    assert answer["error"]["code"] == "upstream_auth_error"
    assert "canary" not in str(answer)
    assert response.headers["x-should-retry"] == "false"
    account = await until(lambda: _idle(accounts))
    assert account.balance == 10 * NANO


async def test_second_target_answers_when_the_first_fails(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.error(500, "broken"))
    response, _ = await client.chat(model="two")
    assert response.status == 200
    assert {seen.json["model"] for seen in upstream.seen} == {"first", "second"}


async def test_caller_error_is_not_retried_on_another_target(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.error(400, "bad schema", code="invalid_value"))
    response, answer = await client.chat(model="two")
    assert response.status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert len(upstream.seen) == 1


async def test_tool_calls_are_passed_on_with_ids_and_argument_text(client: Client, upstream: FakeUpstream) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"port":"Brest"}'}}
    answer = completion({"role": "assistant", "content": None, "tool_calls": [call]})
    upstream.enqueue(Reply.json(answer))
    tools = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
    _, got = await client.chat(tools=tools)
    assert got["choices"][0]["message"]["tool_calls"] == [call]
    assert got["choices"][0]["finish_reason"] == "tool_calls"
    assert upstream.seen[0].json["tools"] == tools


@pytest.mark.holds("prices.md#leaving-early-2")
async def test_client_that_disconnects_stops_the_upstream_within_a_quarter_second(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.silence())
    task = asyncio.create_task(client.chat())
    await until(lambda: upstream.seen)
    async with at_once():
        task.cancel()
        await upstream.wait_ended()
    assert upstream.seen[0].outcome == "left"
    account = await until(lambda: _idle(accounts))
    assert account.balance < 10 * NANO  # the upstream was already reading the prompt


async def test_output_beyond_the_models_limit_is_refused_before_anything_is_sent(
    client: Client, upstream: FakeUpstream
) -> None:
    response, answer = await client.chat(model="capped", max_tokens=101)
    assert response.status == 400
    assert answer["error"]["code"] == "integer_above_max_value"
    assert answer["error"]["param"] == "max_tokens"
    assert not upstream.seen


async def test_gzip_body_is_decoded_and_a_bomb_is_refused(client: Client, upstream: FakeUpstream) -> None:
    import gzip

    body = gzip.compress(msgspec.json.encode({"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}))
    headers = {**client.headers, "Content-Encoding": "gzip"}
    async with client.request("POST", "/v1/chat/completions", data=body, headers=headers) as response:
        assert response.status == 200
    bomb = gzip.compress(b" " * (64 * 2**20))
    async with client.request("POST", "/v1/chat/completions", data=bomb, headers=headers) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "request_too_large"
    headers["Content-Encoding"] = "br"
    async with client.request("POST", "/v1/chat/completions", data=body, headers=headers) as response:
        assert response.status == 415


async def _idle(accounts: Accounts) -> Any:
    account = await accounts.show("acme")
    return account if account.held == 0 else None


async def test_metadata_and_the_requested_tier_are_echoed(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(completion()))
    _, answer = await client.chat(metadata={"run": "7"}, store=True, service_tier="auto")
    assert answer["metadata"] == {"run": "7"}
    assert answer["service_tier"] == "default"


async def test_context_that_cannot_fit_is_refused(client: Client, upstream: FakeUpstream) -> None:
    response, answer = await client.chat(model="capped", messages=[{"role": "user", "content": "word " * 2000}])
    assert response.status == 400
    assert answer["error"]["code"] == "context_length_exceeded"
    assert not upstream.seen


async def test_requests_in_flight_are_counted_while_they_run(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    slow = Reply.json(completion())
    slow.delay = 0.3
    upstream.enqueue(slow)
    totals = Totals()

    def in_flight() -> str:
        totals.merge(gateway.metrics.drain() or MetricsDelta(), source="w")
        text = totals.text()[0].decode()
        return next((line for line in text.splitlines() if line.startswith('gateway_in_flight{endpoint="chat"}')), "")

    task = asyncio.create_task(client.chat())
    await until(lambda: in_flight().endswith(" 1.0"))
    await task
    await until(lambda: in_flight().endswith(" 0.0"))
    text = totals.text()[0].decode()
    assert 'gateway_requests_total{endpoint="chat",model="m1",outcome="ok",provider="up"} 1.0' in text
    assert "gateway_store_seconds_count 1.0" in text

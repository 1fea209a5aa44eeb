"""`POST /v1/messages` over an upstream of OpenAI's dialect: answers, streams, errors, headers, and what they cost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO, USAGE, chunk
from tests.ledger_lines import last_line
from tests.polling import until

ANSWER = {
    "id": "up",
    "object": "chat.completion",
    "created": 1,
    "model": "upstream-m1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
}


def asked(**fields: Any) -> dict[str, Any]:
    """A request."""
    return {"model": "m1", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}], **fields}


async def post(client: Client, path: str = "/v1/messages", headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """The response of a whole call, and its JSON."""
    headers = client.headers if headers is None else headers
    async with client.request("POST", path, headers=headers, json=asked(**fields)) as response:
        return response, await response.json(content_type=None)


def events(text: str) -> list[tuple[str, Any]]:
    """The names and documents of a stream."""
    found = []
    for frame in filter(None, text.split("\n\n")):
        if not frame.startswith(":"):
            name, data = frame.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


async def stream(client: Client, **fields: Any) -> tuple[aiohttp.ClientResponse, list[tuple[str, Any]]]:
    """The response of a streamed call, and its events."""
    text = b""
    async with client.request("POST", "/v1/messages?beta=true", json=asked(stream=True, **fields)) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            pass  # it was cut
    return response, events(text.decode())


async def test_whole_answer_has_the_dialects_form_and_usage(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, document = await post(client)
    assert response.status == 200
    assert document.pop("id").startswith("msg_")
    assert document == {
        "type": "message",
        "role": "assistant",
        "model": "m1",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 17,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 2,
        },
    }
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert "openai-version" not in response.headers


async def test_call_is_found_by_the_id_of_its_answer_and_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, document = await post(client)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert (line.meta["endpoint"], line.meta["usage"]["in_text"], line.meta["usage"]["out_text"]) == ("messages", 17, 2)
    async with client.request("GET", f"/v1/usage/{document['id']}") as receipt:
        assert (await receipt.json())["request_id"] == response.headers["x-request-id"]


async def test_stream_has_the_events_of_the_dialect_in_order(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO))
    response, found = await stream(client)
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert [name for name, _ in found] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert all(document["type"] == name for name, document in found)
    assert found[0][1]["message"]["model"] == "m1"
    assert found[0][1]["message"]["usage"]["input_tokens"] > 0  # the estimate, as the upstream counts at its end
    assert found[-2][1]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert (found[-2][1]["usage"]["input_tokens"], found[-2][1]["usage"]["output_tokens"]) == (17, 2)


async def test_cached_tokens_are_beside_the_input(client: Client, upstream: FakeUpstream) -> None:
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 10}}
    upstream.enqueue(Reply.json({**ANSWER, "usage": usage}))
    _, document = await post(client)
    assert document["usage"]["input_tokens"] == 7
    assert document["usage"]["cache_read_input_tokens"] == 10


async def test_lifetimes_of_cached_tokens_are_in_the_whole_answer_only(client: Client, upstream: FakeUpstream) -> None:
    """Anthropic's `message_delta` has no place for them."""
    details = {"cache_write_tokens": 10, "cache_write_tokens_details": {"ttl_30m_tokens": 4, "ttl_12h_tokens": 6}}
    usage = {**USAGE, "prompt_tokens_details": details}
    upstream.enqueue(Reply.json({**ANSWER, "usage": usage}), Reply.stream([*HELLO[:-1], {**HELLO[-1], "usage": usage}]))
    _, document = await post(client)
    assert document["usage"]["cache_creation"] == {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 6}
    _, found = await stream(client)
    assert found[-2][1]["usage"]["cache_creation_input_tokens"] == 10
    assert "cache_creation" not in found[-2][1]["usage"]


async def test_tool_calls_become_blocks_with_their_ids(client: Client, upstream: FakeUpstream) -> None:
    def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
        function = {"name": first.pop("name"), "arguments": arguments} if first else {"arguments": arguments}
        return chunk({"tool_calls": [{"index": index, **first, "function": function}]})

    upstream.enqueue(
        Reply.stream(
            [
                chunk({"role": "assistant", "content": "Let me look."}),
                call(0, "", id="call_a", name="read"),
                call(0, '{"path":'),
                call(0, '"x"}'),
                call(1, '{"path":"y"}', id="call_b", name="read"),
                chunk(finish="tool_calls"),
                {**HELLO[-1]},
            ]
        )
    )
    _, found = await stream(client, tools=[{"name": "read", "input_schema": {"type": "object"}}])
    blocks = [document["content_block"] for name, document in found if name == "content_block_start"]
    assert [block.get("id") for block in blocks] == [None, "call_a", "call_b"]
    assert [document["index"] for name, document in found if name == "content_block_stop"] == [0, 1, 2]
    deltas = [document for name, document in found if name == "content_block_delta" and document["index"] == 1]
    assert "".join(document["delta"]["partial_json"] for document in deltas) == '{"path":"x"}'
    assert found[-2][1]["delta"]["stop_reason"] == "tool_use"


async def test_alternating_fragments_of_two_calls_go_to_their_blocks(client: Client, upstream: FakeUpstream) -> None:
    def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
        function = {"arguments": arguments, **({"name": "f"} if first else {})}
        return chunk({"tool_calls": [{"index": index, **first, "function": function}]})

    parts = [call(0, '{"a":', id="a"), call(1, '{"b":', id="b"), call(0, "1}"), call(1, "2}")]
    upstream.enqueue(Reply.stream([*parts, chunk(finish="tool_calls"), HELLO[-1]]))
    _, found = await stream(client, tools=[{"name": "f", "input_schema": {"type": "object"}}])
    texts = {0: "", 1: ""}
    for name, document in found:
        if name == "content_block_delta":
            texts[document["index"]] += document["delta"]["partial_json"]
    assert texts == {0: '{"a":1}', 1: '{"b":2}'}
    assert sorted(document["index"] for name, document in found if name == "content_block_stop") == [0, 1]


async def test_reasoning_becomes_a_block_of_thinking(client: Client, upstream: FakeUpstream) -> None:
    thought = [chunk({"role": "assistant", "reasoning_content": "hm"}), *HELLO[1:]]
    upstream.enqueue(Reply.stream(thought))
    _, found = await stream(client, thinking={"type": "adaptive"})
    starts = [document["content_block"]["type"] for name, document in found if name == "content_block_start"]
    assert starts == ["thinking", "text"]
    assert found[2][1]["delta"] == {"type": "thinking_delta", "thinking": "hm"}
    assert upstream.seen[0].json["reasoning_effort"] == "high"


@pytest.mark.parametrize("frames", range(1, len(HELLO) - 1))
async def test_cut_stream_ends_with_an_error_and_is_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger, frames: int
) -> None:
    parts = [b"data: " + json.dumps(part).encode() + b"\n\n" for part in HELLO[:frames]]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=parts, end="cut"))
    response, found = await stream(client)
    name, document = found[-1]
    assert name == "error"
    assert document["type"] == "error"
    assert document["error"]["type"] == "api_error"
    assert document["error"]["details"]["error_code"] == "upstream_stream_truncated"
    assert document["request_id"] == response.headers["x-request-id"]
    assert "message_stop" not in dict(found)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    delivered = "".join(d["delta"].get("text", "") for n, d in found if n == "content_block_delta")
    assert bool(line.meta["usage"].get("out_text", 0)) == bool(delivered)


@pytest.mark.parametrize(
    ("fields", "status", "kind", "code"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error", "missing_required_parameter"),
        ({"max_tokens": 0}, 400, "invalid_request_error", "integer_below_min_value"),
        ({"model": "secret"}, 403, "permission_error", "model_not_permitted"),
        ({"messages": []}, 400, "invalid_request_error", "empty_array"),
    ],
)
async def test_refusals_have_the_dialects_form(
    client: Client, fields: dict[str, Any], status: int, kind: str, code: str
) -> None:
    body = {name: value for name, value in asked(**fields).items() if value is not None}
    async with client.request("POST", "/v1/messages", json=body) as response:
        document = await response.json()
    assert response.status == status
    assert document["type"] == "error"
    assert document["error"]["type"] == kind
    assert document["error"]["details"]["error_code"] == code
    assert document["request_id"] == response.headers["request-id"]


async def test_missing_key_and_unknown_path_have_the_dialects_form(client: Client) -> None:
    response, document = await post(client, headers={"X-None": "1"})
    assert (response.status, document["error"]["type"]) == (401, "authentication_error")
    assert document["error"]["message"] == "Missing or invalid API key"
    async with client.request("POST", "/v1/messages/batches", json={}) as response:
        document = await response.json()
    assert (response.status, document["error"]["type"]) == (404, "not_found_error")
    async with client.request("GET", "/v1/messages") as response:
        document = await response.json()
    assert (response.status, document["error"]["type"]) == (405, "invalid_request_error")


async def test_key_may_come_as_x_api_key_and_goes_before_a_bearer(client: Client, upstream: FakeUpstream) -> None:
    key = client.headers["Authorization"].removeprefix("Bearer ")
    upstream.enqueue(Reply.json(ANSWER), Reply.json(ANSWER))
    response, _ = await post(client, headers={"x-api-key": key})
    assert response.status == 200
    response, _ = await post(client, headers={"x-api-key": key, "Authorization": "Bearer sk-other"})
    assert response.status == 200
    response, _ = await post(client, headers={"x-api-key": "sk-other", **client.headers})
    assert response.status == 401


async def test_exhausted_balance_is_a_payment_required_that_is_not_retried(client: Client, accounts: Accounts) -> None:
    await accounts.credit("acme", -(await accounts.show("acme")).available, allow_negative=True)
    response, document = await post(client)
    assert (response.status, document["error"]["type"]) == (402, "billing_error")
    assert response.headers["x-should-retry"] == "false"
    assert "Retry-After" not in response.headers


async def test_overloaded_upstream_is_a_529(client: Client, upstream: FakeUpstream) -> None:
    overloaded = {"error": {"message": "overloaded", "type": "server_error", "code": "server_is_overloaded"}}
    upstream.enqueue(Reply.json(overloaded, status=503))
    response, document = await post(client)
    assert (response.status, document["error"]["type"]) == (529, "overloaded_error")


async def test_limits_have_the_dialects_headers(client: Client, keys: Keys, upstream: FakeUpstream) -> None:
    key = await keys.create("acme", name="slow", rpm=1)
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    upstream.enqueue(Reply.json(ANSWER))
    response, _ = await post(client)
    assert response.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    reset = datetime.strptime(response.headers["anthropic-ratelimit-requests-reset"], "%Y-%m-%dT%H:%M:%S%z")
    assert timedelta(0) < reset - datetime.now(UTC) <= timedelta(seconds=62)
    response, document = await post(client)
    assert (response.status, document["error"]["type"]) == (429, "rate_limit_error")
    assert response.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert not [name for name in response.headers if name.lower().startswith("x-ratelimit")]


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", "2027-03-01", None])
async def test_known_versions_are_served(client: Client, upstream: FakeUpstream, version: str | None) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    headers = {**client.headers, **({"anthropic-version": version} if version else {})}
    response, _ = await post(client, headers=headers)
    assert response.status == 200


async def test_unknown_version_and_sampling_of_the_newest_are_refused(client: Client) -> None:
    for version in ("2020-01-01", "2023-01-01", "newest", "2026-10-21x", "٢٠٢٦-10-21"):
        response, document = await post(client, headers={**client.headers, "anthropic-version": version})
        assert (response.status, document["error"]["details"]["param"]) == (400, "anthropic-version")
    newest = {**client.headers, "anthropic-version": "2026-10-21"}
    response, document = await post(client, headers=newest, temperature=1)
    assert (response.status, document["error"]["details"]["param"]) == (400, "temperature")


async def test_what_the_upstream_does_not_take_is_left_out_and_named(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, _ = await post(
        client,
        context_management={"edits": []},
        tools=[{"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "auto"},
        top_k=3,
    )
    assert response.headers["x-gateway-dropped-params"] == "tools[web_search_20250305],context_management,top_k"
    assert {"tools", "tool_choice", "top_k"}.isdisjoint(upstream.seen[0].json)


async def test_demand_for_a_tool_of_the_vendor_is_refused(client: Client) -> None:
    response, document = await post(
        client,
        tools=[{"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "tool", "name": "web_search"},
    )
    assert (response.status, document["error"]["details"]["error_code"]) == (400, "unsupported_parameter")


async def test_limit_above_the_models_own_is_lowered(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, _ = await post(client, model="capped", max_tokens=32_000)
    assert response.status == 200
    assert upstream.seen[0].json["max_tokens"] == 100
    assert response.headers["x-gateway-dropped-params"] == "max_tokens"


async def test_tokens_are_counted_without_an_upstream_and_without_a_charge(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    key = await keys.create("acme", name="slow", rpm=5)
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    before = (await accounts.show("acme")).balance
    body = {"model": "m1", "messages": [{"role": "user", "content": "word " * 400}]}
    async with client.request("POST", "/v1/messages/count_tokens?beta=true", json=body) as response:
        document = await response.json()
    assert (response.status, list(document)) == (200, ["input_tokens"])
    assert 300 < document["input_tokens"] < 800
    assert response.headers["x-gateway-estimated"] == "true"
    assert response.headers["anthropic-ratelimit-requests-remaining"] == "4"
    assert not upstream.seen
    assert (await accounts.show("acme")).balance == before


async def test_tokens_are_not_counted_for_a_model_that_is_not_permitted(client: Client) -> None:
    response, document = await post(client, "/v1/messages/count_tokens", model="secret")
    assert (response.status, document["error"]["type"]) == (403, "permission_error")


async def test_claude_code_finds_what_it_asks_for_first(client: Client) -> None:
    async with client.request("HEAD", "/") as response:
        assert response.status == 200
    headers = {**client.headers, "anthropic-version": "2023-06-01"}
    async with client.request("GET", "/v1/models?limit=1000", headers=headers) as response:
        listed = await response.json()
    limits = {"max_input_tokens": 1000, "max_tokens": 100}
    first = {"type": "model", "id": "capped", "display_name": "capped", "lifecycle": "active", **limits}
    assert listed["data"][0].items() >= first.items()
    assert listed["has_more"] is False
    async with client.request("GET", "/v1/models/capped", headers=headers) as response:
        assert (await response.json()).items() >= first.items()

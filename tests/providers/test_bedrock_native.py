"""Messages clients and Claude models on Bedrock: what InvokeModel gets, what comes back, what it costs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tornado.ioloop import IOLoop

from gateway.accounts.key_record import CreatedKey
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply, Seen
from tests.api.conftest import Client
from tests.api.endpoints.test_messages import events, post
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers import messages_dialect
from tests.providers.converse_dialect import (
    ADAPTIVE,
    BUDGET,
    KEY_ID,
    PLAIN,
    REGION,
    SECRET,
    converse,
    exception,
    frame,
    streamed,
)
from tests.providers.messages_client import THINKING, TIDE, stream

FLAGS = "claude-code-20250219,interleaved-thinking-2025-05-14,effort-2025-11-24"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3"
TEXT = {"type": "text", "text": "Hi"}


def answer(seen: Seen) -> Reply:
    """Converse, or a whole answer of InvokeModel."""
    if "/converse" in seen.path:
        return converse(seen)
    return Reply.json(messages_dialect.document("text"))


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Bedrock's server."""
    server = FakeUpstream(answer)
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models of each kind there."""
    keys = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
    provider = {"plugin": "bedrock", "region": REGION, "base_url": upstream.url, **keys}
    rest = {"price": {"input": 3, "output": 15}, "retries": 0}  # so that a scripted failure is seen by its test
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "aws": {**provider, "models": {"*/a1b2c3": {"native_messages": True, "thinking_mode": "budget"}}},
                "converse": {**provider, "models": {"*": {"native_messages": False}}},
                "own": {**provider, "accepts": {"fields": ["...", "metadata"], "betas": ["*"], "tools": []}},
            },
            "groups": {"default": {}},
            "models": {
                "m1": {"provider": "aws", "model": ADAPTIVE, **rest},
                "budget": {"provider": "aws", "model": BUDGET, **rest},
                "arn": {"provider": "aws", "model": ARN, **rest},
                "llama": {"provider": "aws", "model": PLAIN, **rest},
                "converse": {"provider": "converse", "model": ADAPTIVE, **rest},
                "own": {"provider": "own", "model": BUDGET, **rest},
            },
        },
        demo=True,
    )


@pytest.fixture
def client(http_server: HTTPServer, base_url: str, api_key: CreatedKey) -> Client:
    """A client with a good key."""
    headers = {"x-api-key": api_key.text, "anthropic-version": "2023-06-01", "anthropic-beta": FLAGS}
    return Client(base_url.replace("localhost", "127.0.0.1"), headers)


def part(event: bytes) -> bytes:
    """A frame with an event of Anthropic's stream."""
    (data,) = (line.removeprefix(b"data: ") for line in event.split(b"\n") if line.startswith(b"data: "))
    return framed(data)


def framed(data: bytes) -> bytes:
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps({"bytes": base64.b64encode(data).decode(), "p": "abcd"}).encode())


async def test_request_is_forwarded_as_it_was_sent(client: Client, upstream: FakeUpstream) -> None:
    messages = [
        {"role": "user", "content": [{**TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        {"role": "assistant", "content": THINKING},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "6:40"}]},
    ]
    sent: dict[str, Any] = {
        "messages": messages,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [TIDE],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "stop_sequences": ["a", "b"],
    }
    response, found = await post(client, **sent, metadata={"user_id": "u"})
    assert response.status == 200, found
    seen = upstream.seen[0]
    own = {"anthropic_version": "bedrock-2023-05-31", "anthropic_beta": ["interleaved-thinking-2025-05-14"]}
    assert seen.json == {**own, "max_tokens": 64, **sent}
    assert b'"thinking":"Hm.\\u00e9 "' in seen.body.replace(b'": "', b'":"')  # the bytes of the caller
    assert seen.path == f"/model/{ADAPTIVE.replace(':', '%3A')}/invoke"
    assert {name.lower() for name in seen.headers}.isdisjoint({"anthropic-beta", "anthropic-version", "x-api-key"})
    dropped = set(response.headers["x-gateway-dropped-params"].split(","))
    assert dropped == {"metadata", "claude-code-20250219", "effort-2025-11-24"}


@pytest.mark.parametrize("model", ["m1", "arn"])
async def test_request_has_the_signature_that_amazons_own_signer_makes(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    await post(client, model=model)
    seen = upstream.seen[0]
    listed = seen.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = {name: seen.headers[name] for name in listed}
    request = AWSRequest("POST", upstream.url + seen.path, headers=signed, data=seen.body)
    request.context["timestamp"] = seen.headers["x-amz-date"]
    auth = SigV4Auth(Credentials(KEY_ID, SECRET), "bedrock", REGION)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    assert seen.headers["authorization"].endswith(f"Signature={auth.signature(text, request)}")


async def test_whole_answer_comes_back_with_id_model_and_usage_replaced(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    theirs = messages_dialect.document("thinking")
    upstream.enqueue(Reply.json(theirs))
    response, found = await post(client)
    assert (found["content"], found["stop_reason"]) == (theirs["content"], theirs["stop_reason"])
    assert (found["model"], found["id"][:4]) == ("m1", "msg_")
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    usage = line.meta["usage"]
    assert theirs["usage"]["output_tokens"] == usage["out_text"] + usage.get("out_reasoning", 0)


@pytest.mark.parametrize("name", ["text", "thinking", "tools", "cache", "refusal"])
async def test_events_come_back_as_they_were_except_for_id_model_and_usage(
    client: Client, upstream: FakeUpstream, name: str
) -> None:
    parts = messages_dialect.frames(name)
    upstream.enqueue(streamed(*map(part, parts)))
    _, found, raw = await stream(client, thinking={"type": "adaptive"})
    assert upstream.seen[0].path.endswith("/invoke-with-response-stream")
    assert "stream" not in upstream.seen[0].json
    theirs = events(b"".join(parts).decode())
    assert [kind for kind, _ in found] == [kind for kind, _ in theirs]
    for one in parts:
        if b"content_block" in one.split(b"\n")[0]:
            assert one in raw


async def test_counts_of_bedrock_in_the_last_event_are_not_passed_on(client: Client, upstream: FakeUpstream) -> None:
    *first, _ = map(part, messages_dialect.frames("text"))
    metrics = {"inputTokenCount": 5, "outputTokenCount": 7, "invocationLatency": 900}
    last = {"type": "message_stop", "amazon-bedrock-invocationMetrics": metrics}
    upstream.enqueue(streamed(*first, framed(json.dumps(last).encode())))
    _, found, raw = await stream(client)
    assert found[-1] == ("message_stop", {"type": "message_stop"})
    assert b"amazon" not in raw


@pytest.mark.parametrize("cut", range(len(messages_dialect.frames("thinking"))))
async def test_cut_at_each_frame_never_looks_complete_and_is_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger, cut: int
) -> None:
    reply = streamed(*map(part, messages_dialect.frames("thinking")[:cut]))
    reply.end = "cut"
    upstream.enqueue(reply)
    response, found, _ = await stream(client, thinking={"type": "adaptive"})
    assert "message_stop" not in dict(found)
    if response.status == 200:
        assert found[-1][0] == "error"
        line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
        delivered = any(kind == "content_block_delta" for kind, _ in found)
        assert bool(line.meta["usage"].get("out_text", 0)) == delivered


@pytest.mark.parametrize(
    ("kind", "status"), [("throttlingException", 429), ("validationException", 400), ("internalServerException", 502)]
)
async def test_exception_before_the_first_content_is_an_error_status(
    client: Client, upstream: FakeUpstream, kind: str, status: int
) -> None:
    start = part(messages_dialect.frames("text")[0])
    upstream.enqueue(streamed(start, exception(kind, message="too much")))
    response, _, text = await stream(client)
    assert response.status == status, text


async def test_exception_after_content_ends_the_stream_with_an_error(client: Client, upstream: FakeUpstream) -> None:
    parts = list(map(part, messages_dialect.frames("text")))
    upstream.enqueue(streamed(*parts[:4], exception("modelStreamErrorException", message="it broke")))
    _, found, _ = await stream(client)
    assert [kind for kind, _ in found][-1] == "error"
    assert "message_stop" not in dict(found)


async def test_refusal_of_bedrock_is_told(client: Client, upstream: FakeUpstream) -> None:
    headers = {"x-amzn-errortype": "ValidationException:http://internal.amazon.com/coral/"}
    upstream.enqueue(Reply.json({"message": "messages.1: roles must alternate"}, status=400, headers=headers))
    response, found = await post(client)
    assert (response.status, found["error"]["type"]) == (400, "invalid_request_error")
    assert "roles must alternate" in found["error"]["message"]


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        (
            [{"role": "user", "content": "a"}, {"role": "system", "content": "s"},
             {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "s"}]},
             {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
        ),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
             {"role": "system", "content": [{"type": "text", "text": "s"}]}, {"role": "user", "content": [TEXT]}],
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
             {"role": "user", "content": [TEXT, {"type": "text", "text": "s"}]}],
        ),
    ],
)  # fmt: skip
async def test_turn_of_the_system_becomes_a_part_of_the_users(
    client: Client, upstream: FakeUpstream, messages: list[Any], sent: list[Any]
) -> None:
    response, found = await post(client, messages=messages)
    assert response.status == 200, found
    assert upstream.seen[0].json["messages"] == sent
    assert "mid-conversation-system-2026-04-07" not in upstream.seen[0].json.get("anthropic_beta", [])


@pytest.mark.parametrize("model", ["llama", "converse"])
async def test_other_models_get_a_translated_request(client: Client, upstream: FakeUpstream, model: str) -> None:
    response, found = await post(client, model=model)
    assert response.status == 200, found
    assert upstream.seen[0].path.endswith("/converse")
    upstream.seen.clear()
    _, found, _ = await stream(client, model=model)
    assert found[-1][0] == "message_stop"
    assert upstream.seen[0].path.endswith("/converse-stream")


async def test_chat_request_to_a_claude_model_is_sent_by_converse(client: Client, upstream: FakeUpstream) -> None:
    body = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
    async with client.request("POST", "/v1/chat/completions", json=body) as response:
        assert response.status == 200
    assert upstream.seen[0].path.endswith("/converse")


@pytest.mark.parametrize("model", ["budget", "arn"])
async def test_adaptive_thinking_becomes_a_budget_where_the_model_wants_one(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    thinking: dict[str, Any] = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}
    await post(client, model=model, max_tokens=32_000, **thinking)
    assert upstream.seen[0].json["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    assert "output_config" not in upstream.seen[0].json


async def test_flag_that_a_field_needs_is_added_to_the_body(client: Client, upstream: FakeUpstream) -> None:
    client.headers.pop("anthropic-beta")
    await post(client, context_management={"edits": []})
    assert upstream.seen[0].json["anthropic_beta"] == ["context-management-2025-06-27"]


async def test_flag_of_a_tool_is_added_and_another_name_of_one_is_translated(
    client: Client, upstream: FakeUpstream
) -> None:
    client.headers["anthropic-beta"] = "advanced-tool-use-2025-11-20"
    response, _ = await post(client, tools=[{"type": "memory_20250818", "name": "memory"}])
    flags = ["tool-search-tool-2025-10-19", "context-management-2025-06-27"]
    assert upstream.seen[0].json["anthropic_beta"] == flags
    assert "x-gateway-dropped-params" not in response.headers


async def test_scope_of_a_cache_point_is_left_out(client: Client, upstream: FakeUpstream) -> None:
    client.headers["anthropic-beta"] = "prompt-caching-scope-2026-01-05"
    scoped = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "scope": "global"}}
    response, _ = await post(client, system=[scoped])
    assert upstream.seen[0].json["system"] == [{**scoped, "cache_control": {"type": "ephemeral"}}]
    assert response.headers["x-gateway-dropped-params"] == "prompt-caching-scope-2026-01-05"


async def test_tools_that_only_anthropic_runs_are_left_out(client: Client, upstream: FakeUpstream) -> None:
    tools = [{"type": "bash_20250124", "name": "bash"}, {"type": "web_search_20250305", "name": "web_search"}]
    response, _ = await post(client, tools=tools)
    assert upstream.seen[0].json["tools"] == tools[:1]
    assert "tools[web_search_20250305]" in response.headers["x-gateway-dropped-params"]


async def test_operator_sets_what_is_accepted(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await post(client, model="own", metadata={"user_id": "u"}, tools=[TIDE])
    seen = upstream.seen[0].json
    assert (seen["metadata"], seen["anthropic_beta"]) == ({"user_id": "u"}, FLAGS.split(","))
    assert "x-gateway-dropped-params" not in response.headers

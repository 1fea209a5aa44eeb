"""Messages clients and Anthropic's dialect behind the gateway: what is forwarded, what comes back, what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from tornado.ioloop import IOLoop

from gateway.accounts.key_record import CreatedKey
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.ledger import Ledger
from gateway.schemas.reasoning_state import ReasoningState, write_state
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_messages import asked, events, post
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.messages_client import THINKING, TIDE, stream
from tests.providers.messages_dialect import BUDGET, document, frames, messages_chat, streamed

FLAGS = "claude-code-20250219,interleaved-thinking-2025-05-14,not-yet-known-2027-01-01"


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Anthropic's server."""
    server = FakeUpstream(messages_chat)
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models of each kind there."""
    provider = {"plugin": "anthropic", "base_url": upstream.url, "api_key": "sk-ant-canary-01"}
    rest = {"price": {"input": 3, "output": 15}, "retries": 0}  # so that a scripted failure is seen by its test
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "claude": provider,
                "dated": {**provider, "models": {"*": {"version": "2026-10-21"}}},
                "own": {**provider, "accepts": {"fields": ["...", "speed"], "betas": ["*"], "tools": []}},
            },
            "groups": {"default": {}},
            "models": {
                "m1": {"provider": "claude", "model": "claude-sonnet-5", **rest},
                "budget": {"provider": "claude", "model": BUDGET, **rest},
                "small": {"provider": "claude", "model": BUDGET, **rest, "max_output_tokens": 2000},
                "own": {"provider": "own", "model": "claude-sonnet-5", **rest},
                "dated": {"provider": "dated", "model": "claude-sonnet-5", **rest},
                "tiny": {"provider": "claude", "model": "tiny", **rest},
            },
        },
        demo=True,
    )


@pytest.fixture
def client(http_server: HTTPServer, base_url: str, api_key: CreatedKey) -> Client:
    """A client with a good key."""
    headers = {"x-api-key": api_key.text, "anthropic-version": "2023-06-01", "anthropic-beta": FLAGS}
    return Client(base_url.replace("localhost", "127.0.0.1"), headers)


async def test_request_is_forwarded_as_it_was_sent(client: Client, upstream: FakeUpstream) -> None:
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        },
        {"role": "assistant", "content": THINKING},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "6:40"}]},
    ]
    sent: dict[str, Any] = {
        "messages": messages,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [TIDE],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"session_id":"s"}'},
        "stop_sequences": ["a", "b", "c", "d", "e"],
    }
    response, document_ = await post(client, **sent)
    assert response.status == 200, document_
    seen = upstream.seen[0]
    assert seen.json == {"model": "claude-sonnet-5", "max_tokens": 64, **sent}
    assert b'"thinking":"Hm.\\u00e9 "' in seen.body.replace(b'": "', b'":"')  # the bytes of the caller
    assert seen.headers["anthropic-version"] == "2023-06-01"
    assert seen.headers["anthropic-beta"] == "claude-code-20250219,interleaved-thinking-2025-05-14"
    assert response.headers["x-gateway-dropped-params"] == "not-yet-known-2027-01-01"
    assert "x-api-key" not in {name.lower() for name in response.headers}


async def test_whole_answer_comes_back_with_id_model_and_usage_replaced(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.json(document("thinking")))
    response, found = await post(client)
    theirs = document("thinking")
    assert found["content"] == theirs["content"]
    assert (found["stop_reason"], found["model"]) == (theirs["stop_reason"], "m1")
    assert found["id"].startswith("msg_") and found["id"] != theirs["id"]
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    usage = line.meta["usage"]
    assert found["usage"]["output_tokens"] == usage["out_text"] + usage.get("out_reasoning", 0)
    assert found["usage"]["output_tokens"] == theirs["usage"]["output_tokens"]


@pytest.mark.parametrize("name", ["text", "thinking", "tools", "cache", "refusal"])
async def test_events_come_back_as_they_were_except_for_id_model_and_usage(
    client: Client, upstream: FakeUpstream, name: str
) -> None:
    upstream.enqueue(streamed(*frames(name)))
    _, found, raw = await stream(client, thinking={"type": "adaptive"})
    theirs = events(b"".join(frames(name)).decode())
    assert [kind for kind, _ in found] == [kind for kind, _ in theirs]
    for (kind, ours), (_, other) in zip(found, theirs, strict=True):
        if kind == "message_start":
            assert (ours["message"]["model"], ours["message"]["id"][:4]) == ("m1", "msg_")
            assert ours["message"]["usage"]["input_tokens"] == other["message"]["usage"]["input_tokens"]
        elif kind == "message_delta":
            assert ours["delta"] == other["delta"]
            assert ours["usage"]["output_tokens"] == other["usage"]["output_tokens"]
        else:
            assert ours == other
    for frame in frames(name):
        if b"content_block" in frame.split(b"\n")[0]:
            assert frame in raw


@pytest.mark.parametrize("cut", range(len(frames("thinking"))))
async def test_cut_at_each_frame_never_looks_complete_and_is_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger, cut: int
) -> None:
    parts = frames("thinking")[:cut]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=parts, end="cut"))
    response, found, _ = await stream(client, thinking={"type": "adaptive"})
    assert "message_stop" not in dict(found)
    if response.status == 200:
        assert found[-1][0] == "error"
        line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
        delivered = any(kind == "content_block_delta" for kind, _ in found)
        assert bool(line.meta["usage"].get("out_text", 0)) == delivered


async def test_overload_before_the_first_content_is_a_529(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed(*frames("overloaded")))
    async with client.request("POST", "/v1/messages", json=asked(stream=True)) as response:
        text = await response.text()
    assert response.status == 529, text


async def test_flags_that_a_field_needs_are_added(client: Client, upstream: FakeUpstream) -> None:
    client.headers.pop("anthropic-beta")
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "Be brief."},
    ]
    await post(client, messages=messages, context_management={"edits": []})
    assert upstream.seen[0].headers["anthropic-beta"] == (
        "context-management-2025-06-27,mid-conversation-system-2026-04-07"
    )


async def test_thinking_without_a_signature_is_left_out(client: Client, upstream: FakeUpstream) -> None:
    unsigned = [{"type": "thinking", "thinking": "x", "signature": ""}, {"type": "text", "text": "y"}]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": unsigned}]
    await post(client, messages=[*turns, {"role": "user", "content": "b"}])
    assert upstream.seen[0].json["messages"][1]["content"] == [{"type": "text", "text": "y"}]


async def test_signature_of_another_vendor_is_left_out(client: Client, upstream: FakeUpstream) -> None:
    carried = write_state(ReasoningState(("m1",), calls={"call_1": Raw(b'{"google":{"thought_signature":"x"}}')}))
    use = {"type": "tool_use", "id": "call_1", "name": "tide", "input": {}}
    answer = [{"type": "redacted_thinking", "data": carried}, {"type": "redacted_thinking", "data": "own"}, use]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "6"}
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": answer}]
    await post(client, messages=[*turns, {"role": "user", "content": [result]}])
    assert upstream.seen[0].json["messages"][1]["content"] == answer[1:]


async def test_adaptive_thinking_becomes_a_budget_where_the_model_wants_one(
    client: Client, upstream: FakeUpstream
) -> None:
    thinking: dict[str, Any] = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}
    await post(client, model="budget", max_tokens=32_000, **thinking)
    assert upstream.seen[0].json["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    assert "output_config" not in upstream.seen[0].json


async def test_budget_is_lowered_with_a_limit_that_is_lowered(client: Client, upstream: FakeUpstream) -> None:
    thinking = {"type": "enabled", "budget_tokens": 10_000}
    response, _ = await post(client, model="small", max_tokens=32_000, thinking=thinking)
    assert response.status == 200
    seen = upstream.seen[0].json
    assert (seen["max_tokens"], "thinking" in seen) == (2000, False)  # less than the least budget is left


async def test_sampling_that_the_model_refuses_is_left_out_and_named(client: Client, upstream: FakeUpstream) -> None:
    client.headers.pop("anthropic-beta")
    response, _ = await post(client, temperature=0.5, top_k=3)
    assert {"temperature", "top_k"}.isdisjoint(upstream.seen[0].json)
    assert sorted(response.headers["x-gateway-dropped-params"].split(",")) == ["temperature", "top_k"]


async def test_sampling_of_a_chat_request_that_the_model_refuses_is_named(
    client: Client, upstream: FakeUpstream
) -> None:
    body = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "top_p": 0.5}
    async with client.request("POST", "/v1/chat/completions", json=body) as response:
        assert response.status == 200
    assert {"temperature", "top_p"}.isdisjoint(upstream.seen[0].json)
    assert sorted(response.headers["x-gateway-dropped-params"].split(",")) == ["temperature", "top_p"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
async def test_model_of_another_vendor_gets_the_temperature(client: Client, upstream: FakeUpstream, path: str) -> None:
    """Servers of other vendors speak this dialect, too: without its temperature of 0, an answer is random."""
    client.headers.pop("anthropic-beta")
    body = {"input": "Hi"} if path == "/v1/responses" else asked()
    async with client.request("POST", path, json={**body, "model": "tiny", "temperature": 0}) as response:
        assert response.status == 200, await response.text()
    assert upstream.seen[0].json["temperature"] == 0
    assert "x-gateway-dropped-params" not in response.headers


async def test_operator_sets_what_is_accepted(client: Client, upstream: FakeUpstream) -> None:
    tools = [TIDE, {"type": "bash_20250124", "name": "bash"}]
    response, _ = await post(client, model="own", speed="fast", tools=tools)
    seen = upstream.seen[0]
    assert (seen.json["speed"], seen.json["tools"]) == ("fast", [TIDE])
    assert seen.headers["anthropic-beta"] == FLAGS + ",fast-mode-2026-02-01"
    assert response.headers["x-gateway-dropped-params"] == "tools[bash_20250124]"


async def test_tools_of_the_vendor_are_forwarded(client: Client, upstream: FakeUpstream) -> None:
    tools = [{"type": "bash_20250124", "name": "bash"}, {"type": "code_execution_20250522", "name": "code_execution"}]
    response, _ = await post(client, tools=tools, tool_choice={"type": "auto"})
    assert upstream.seen[0].json["tools"] == tools[:1]
    assert "tools[code_execution_20250522]" in response.headers["x-gateway-dropped-params"]


async def test_document_by_address_is_forwarded(client: Client, upstream: FakeUpstream) -> None:
    part = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
    content = [part, {"type": "text", "text": "Read"}]
    response, _ = await post(client, messages=[{"role": "user", "content": content}])
    assert response.status == 200
    assert upstream.seen[0].json["messages"][0]["content"] == content


async def test_addresses_and_credentials_are_not_forwarded(client: Client, upstream: FakeUpstream) -> None:
    client.headers.pop("anthropic-beta")
    content = [{"type": "text", "text": "Hi", "api_base": "https://evil.example"}]
    inner = {"role": "user", "content": content}
    response, _ = await post(client, messages=[inner], api_key="sk-evil", context_management={"base_url": "x"})
    assert response.status == 200
    assert upstream.seen[0].json["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert b"evil" not in upstream.seen[0].body
    assert b"base_url" not in upstream.seen[0].body
    assert {"api_key", "messages.api_base"} <= set(response.headers["x-gateway-dropped-params"].split(","))


COMPACTION = {"type": "compaction", "content": "What was before."}
EDITS = {"edits": [{"type": "compact_20260112"}]}


@pytest.mark.no_standard  # its blocks are in the SDK's beta classes only
@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [("context_management", EDITS, "compact-2026-01-12"), ("compaction", {"type": "auto"}, "compact-2026-09-04")],
)
async def test_compaction_is_forwarded_and_its_tokens_are_charged(
    client: Client, upstream: FakeUpstream, ledger: Ledger, field: str, value: Any, flag: str
) -> None:
    """Both ways that Anthropic has; the usage of the answer does not include that of the compaction."""
    client.headers["anthropic-beta"] = flag
    answer = document("text")
    summary = {"type": "compaction", "input_tokens": 1000, "output_tokens": 100}
    counts = {"input_tokens": 20, "output_tokens": 5}
    iterations = [summary, {"type": "message", **counts}]
    answer |= {"content": [COMPACTION, *answer["content"]], "usage": {**counts, "iterations": iterations}}
    upstream.enqueue(Reply.json(answer))
    response, found = await post(client, **{field: value})
    assert response.status == 200, found
    seen = upstream.seen[0]
    assert seen.json[field] == value
    assert flag in seen.headers["anthropic-beta"].split(",")
    assert found["content"][0] == COMPACTION
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (1020, 105)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -(1020 * 3 + 105 * 15) * 1000

    upstream.enqueue(Reply.json(document("text")))
    user = {"role": "user", "content": "Hi"}
    turns = [user, {"role": "assistant", "content": found["content"]}, user]
    await post(client, messages=turns, **{field: value})
    assert upstream.seen[1].json["messages"][1]["content"][0] == COMPACTION


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21", "2027-03-01"])
async def test_version_of_the_caller_is_forwarded(client: Client, upstream: FakeUpstream, version: str) -> None:
    client.headers["anthropic-version"] = version
    response, found = await post(client)
    assert response.status == 200, found
    assert upstream.seen[0].headers["anthropic-version"] == version


async def test_version_that_a_model_demands_goes_before_that_of_the_caller(
    client: Client, upstream: FakeUpstream
) -> None:
    client.headers["anthropic-version"] = "2027-03-01"
    response, found = await post(client, model="dated")
    assert response.status == 200, found
    assert upstream.seen[0].headers["anthropic-version"] == "2026-10-21"


@pytest.mark.parametrize("streams", [False, True])
async def test_refused_signature_is_left_out_and_the_call_sent_once_more(
    client: Client, upstream: FakeUpstream, ledger: Ledger, *, streams: bool
) -> None:
    """Another vendor of the same dialect wrote it; nothing in it says so."""
    text = "messages.1.content.0: Invalid `signature` in `thinking` block"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    upstream.enqueue(Reply.json(error, status=400))
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": THINKING},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "6:40"}]},
    ]
    sent: dict[str, Any] = {"messages": messages, "tools": [TIDE], "thinking": {"type": "adaptive"}}
    response = (await stream(client, **sent))[0] if streams else (await post(client, **sent))[0]
    assert response.status == 200
    assert "messages.thinking,thinking" in response.headers["x-gateway-dropped-params"]
    first, second = upstream.seen
    assert first.json["messages"] == messages
    assert [block["type"] for block in second.json["messages"][1]["content"]] == ["tool_use"]
    assert second.json["thinking"] == {"type": "disabled"}
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["usage"]["out_text"] > 0

"""Messages and chat clients, the gateway, and Claude on Vertex AI: what is forwarded, left out and answered."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.key_record import CreatedKey
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from gateway_providers.anthropic.accepted import VERTEX
from tests.api.conftest import Client
from tests.api.endpoints.claude_code import HEADERS, REQUEST
from tests.api.endpoints.test_messages import events, post
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.gemini_upstream import google_error
from tests.providers.messages_client import LONG, THINKING, TIDE, stream
from tests.providers.messages_dialect import document, frames, streamed
from tests.providers.vertex_dialect import MODEL, MODELS, WHOLE, vertex_chat

#: Those of Claude Code.
FLAGS = (
    "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "prompt-caching-scope-2026-01-05,advanced-tool-use-2025-11-20,effort-2025-11-24"
)
HI = [{"role": "user", "content": "Hi there"}]


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Vertex, behind a proxy that adds the credentials."""
    server = FakeUpstream(vertex_chat)
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model there, and the same with a list of the operator's own."""
    vertex = {
        "plugin": "anthropic",
        "base_url": f"{upstream.url}/v1",
        "project": "my-project",
        "location": "europe-west4",
        "auth": "none",
    }
    rest = {"model": MODEL, "price": {"input": 3, "output": 15}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"vertex": vertex, "own": {**vertex, "accepts": {"betas": ["*"]}}},
            "groups": {"default": {}},
            "models": {"m1": {"provider": "vertex", **rest}, "own": {"provider": "own", **rest}},
        },
        demo=True,
    )


@pytest.fixture
def client(http_server: HTTPServer, base_url: str, api_key: CreatedKey) -> Client:
    """A client with a good key and no flags."""
    headers = {"x-api-key": api_key.text, "anthropic-version": "2023-06-01"}
    return Client(base_url.replace("localhost", "127.0.0.1"), headers)


def dropped(response: Any) -> set[str]:
    """What the answer says was left out."""
    return set(filter(None, response.headers.get("x-gateway-dropped-params", "").split(",")))


# Messages requests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
async def test_messages_request_is_forwarded_byte_for_byte(
    client: Client, upstream: FakeUpstream, streams: bool
) -> None:
    long = {"type": "text", "text": "Hi", "cache_control": LONG}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "6:40"}
    sent: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": [long]},
            {"role": "assistant", "content": THINKING},
            {"role": "user", "content": [result, {"type": "text", "text": "so when"}]},
        ],
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "tools": [TIDE],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"session_id":"s"}'},
        "temperature": 0.5,
    }
    if streams:
        response, found, _ = await stream(client, **sent)
        assert [name for name, _ in found][-1] == "message_stop"
    else:
        response, answer = await post(client, **sent)
        assert answer["content"] == [{"type": "text", "text": "so when "}] and answer["model"] == "m1"
    assert response.status == 200 and not dropped(response)
    seen = upstream.seen[0]
    frame = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 64, **({"stream": True} if streams else {})}
    assert seen.json == {**frame, **sent}
    assert json.dumps(sent["messages"]).encode() in seen.body  # the bytes of the caller
    assert seen.path == (f"{MODELS}/{MODEL}:streamRawPredict" if streams else f"{MODELS}/{WHOLE}")
    assert not {"anthropic-version", "anthropic-beta", "x-api-key", "authorization"} & seen.headers.keys()


async def test_fields_and_flags_that_vertex_does_not_take_are_left_out_and_named(
    client: Client, upstream: FakeUpstream
) -> None:
    client.headers["anthropic-beta"] = FLAGS
    fields: dict[str, Any] = {"service_tier": "auto", "cache_control": {"type": "ephemeral"}, "diagnostics": {}}
    response, answer = await post(client, context_management={"edits": []}, **fields)
    assert response.status == 200, answer
    assert upstream.seen[0].json.keys() == {"anthropic_version", "max_tokens", "messages", "context_management"}
    assert upstream.seen[0].headers["anthropic-beta"] == (
        "interleaved-thinking-2025-05-14,context-management-2025-06-27,tool-search-tool-2025-10-19"
    )
    assert dropped(response) == {
        "claude-code-20250219",
        "prompt-caching-scope-2026-01-05",
        "effort-2025-11-24",
        *fields,
    }


async def test_request_of_claude_code_has_nothing_that_vertex_refuses(client: Client, upstream: FakeUpstream) -> None:
    client.headers.update(HEADERS)
    async with client.request("POST", "/v1/messages?beta=true", json=REQUEST) as response:
        text = await response.text()
    assert response.status == 200 and events(text)[-1][0] == "message_stop", text
    seen = upstream.seen[0]
    assert seen.json.keys() - {"anthropic_version", "max_tokens", "stream"} <= VERTEX.fields
    assert set(seen.headers["anthropic-beta"].split(",")) <= (VERTEX.betas or set())
    assert {turn["role"] for turn in seen.json["messages"]} == {"user", "assistant"}
    assert set(HEADERS["anthropic-beta"].split(",")) - (VERTEX.betas or set()) <= dropped(response)


async def test_flags_that_fields_and_tools_need_are_added(client: Client, upstream: FakeUpstream) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
    response, answer = await post(client, context_management={"edits": []}, tools=tools)
    assert response.status == 200, answer
    assert upstream.seen[0].headers["anthropic-beta"] == "web-search-2025-03-05,context-management-2025-06-27"
    assert [tool["type"] for tool in upstream.seen[0].json["tools"]] == ["web_search_20250305", "bash_20250124"]


async def test_scope_of_a_cache_breakpoint_is_left_out_with_its_flag(client: Client, upstream: FakeUpstream) -> None:
    client.headers["anthropic-beta"] = "prompt-caching-scope-2026-01-05"
    scoped = {"type": "ephemeral", "ttl": "1h", "scope": "global"}
    words = {"type": "text", "text": 'a "scope" of words'}
    content = [words, {**words, "cache_control": scoped}]
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    body: dict[str, Any] = {
        "messages": [*turns, {"role": "user", "content": content}],
        "system": [{**words, "cache_control": scoped}],
        "tools": [{**TIDE, "cache_control": scoped}, {"name": "other", "input_schema": {"scope": {}}}],
    }
    response, _ = await post(client, **body)
    assert dropped(response) == {"prompt-caching-scope-2026-01-05"}
    seen = upstream.seen[0].json
    assert seen["messages"] == [*turns, {"role": "user", "content": [words, {**words, "cache_control": LONG}]}]
    assert seen["system"] == [{**words, "cache_control": LONG}]
    assert seen["tools"] == [{**TIDE, "cache_control": LONG}, body["tools"][1]]
    await post(client, model="own", **body)
    assert upstream.seen[1].json["system"][0]["cache_control"] == scoped


async def test_system_turn_is_sent_as_the_users(client: Client, upstream: FakeUpstream) -> None:
    client.headers["anthropic-beta"] = "mid-conversation-system-2026-04-07"
    turns = [*HI, {"role": "system", "content": "Be brief."}]
    response, answer = await post(client, messages=turns)
    assert response.status == 200, answer
    texts = [{"type": "text", "text": "Hi there"}, {"type": "text", "text": "Be brief."}]
    assert upstream.seen[0].json["messages"] == [{"role": "user", "content": texts}]
    assert "anthropic-beta" not in upstream.seen[0].headers
    assert dropped(response) == {"mid-conversation-system-2026-04-07"}


async def test_operator_sets_what_is_accepted(client: Client, upstream: FakeUpstream) -> None:
    turns = [*HI, {"role": "system", "content": "Be brief."}]
    client.headers["anthropic-beta"] = "not-yet-known-2027-01-01"
    response, _ = await post(client, model="own", messages=turns)
    assert upstream.seen[0].json["messages"] == turns and not dropped(response)
    flags = "not-yet-known-2027-01-01,mid-conversation-system-2026-04-07"
    assert upstream.seen[0].headers["anthropic-beta"] == flags


# Answers -------------------------------------------------------------------------------------------------------------


async def test_whole_answer_comes_back_and_is_charged(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(Reply.json(document("thinking")))
    response, found = await post(client)
    assert found["content"] == document("thinking")["content"]
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    usage = line.meta["usage"]
    assert found["usage"]["output_tokens"] == usage["out_text"] + usage.get("out_reasoning", 0)


@pytest.mark.parametrize("name", ["thinking", "tools", "cache"])
async def test_events_come_back_as_they_were(client: Client, upstream: FakeUpstream, name: str) -> None:
    upstream.enqueue(streamed(*frames(name)))
    _, found, raw = await stream(client, thinking={"type": "adaptive"})
    assert [kind for kind, _ in found] == [kind for kind, _ in events(b"".join(frames(name)).decode())]
    assert all(frame in raw for frame in frames(name) if b"content_block" in frame.split(b"\n")[0])


@pytest.mark.parametrize("cut", range(0, len(frames("thinking")), 3))
async def test_cut_stream_has_no_end(client: Client, upstream: FakeUpstream, cut: int) -> None:
    parts = frames("thinking")[:cut]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=parts, end="cut"))
    response, found, raw = await stream(client)
    assert b"message_stop" not in raw
    assert response.status >= 500 or found[-1][0] == "error"


# Chat requests -------------------------------------------------------------------------------------------------------


async def test_chat_request_with_tools_and_thinking_is_translated(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(document("tools")))
    tool = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
    asked = {"model": "m1", "messages": HI, "tools": [tool], "reasoning_effort": "high"}
    async with client.request("POST", "/v1/chat/completions", json=asked) as response:
        answer = await response.json()
    assert answer["choices"][0]["finish_reason"] == "tool_calls" and answer["choices"][0]["message"]["tool_calls"]
    seen = upstream.seen[0]
    assert seen.json["thinking"]["type"] == "adaptive" and seen.json["output_config"] == {"effort": "high"}
    assert seen.json["tools"] == [{"name": "tide", "input_schema": {"type": "object"}}]
    assert seen.json["anthropic_version"] == "vertex-2023-10-16" and "model" not in seen.json


async def test_chat_stream_that_is_cut_ends_with_an_error(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed(*frames("text")[:-1]))
    asked = {"model": "m1", "messages": HI, "stream": True}
    text = b""
    async with client.request("POST", "/v1/chat/completions", json=asked) as response:
        with contextlib.suppress(aiohttp.ClientError):
            async for part in response.content.iter_any():
                text += part
    assert b'"error"' in text and b"[DONE]" not in text
    assert upstream.seen[0].path.endswith(":streamRawPredict")


@pytest.mark.parametrize(("status", "ours"), [(400, 400), (401, 502), (403, 502), (429, 429), (500, 502)])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
async def test_errors_reach_the_client_without_project_and_host(
    client: Client, upstream: FakeUpstream, status: int, ours: int, path: str
) -> None:
    words = f"Permission denied on projects/my-project/locations/x at {upstream.url}"
    for streams in (False, True):
        upstream.enqueue(Reply.json([google_error(status, "SOME_STATUS", words)], status=status))
        asked = {"model": "m1", "messages": HI, "max_tokens": 64, "stream": streams}
        async with client.request("POST", path, json=asked) as response:
            text = await response.text()
        assert response.status == ours, text
        assert "my-project" not in text and "127.0.0.1" not in text

"""Claude Code's recorded request over upstreams of three dialects: it is accepted, and nothing is passed on to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.key_record import CreatedKey
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.claude_code import HEADERS, REQUEST
from tests.api.endpoints.test_chat_stream import HELLO
from tests.api.endpoints.test_messages import events
from tests.providers.gemini_upstream import KEY, STREAM, sse
from tests.providers.messages_dialect import frames, streamed

ANSWERS = {"openai": Reply.stream(HELLO), "anthropic": streamed(*frames("text")), "gemini": sse(*STREAM)}


@contextmanager
def served(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """A server."""
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def upstreams(io_loop: IOLoop) -> Iterator[dict[str, FakeUpstream]]:
    """A server for each dialect."""
    with ExitStack() as stack:
        yield {dialect: stack.enter_context(served(io_loop)) for dialect in ANSWERS}


@pytest.fixture
def settings(tmp_path: Path, upstreams: dict[str, FakeUpstream]) -> Settings:
    """A model on each of them, with a lower output limit than the program asks for."""
    urls = {dialect: server.url for dialect, server in upstreams.items()}
    names = {"openai": "gpt-5.2", "anthropic": "claude-sonnet-5", "gemini": "gemini-2.5-flash"}
    rest = {"price": {"input": 1, "output": 2}, "retries": 0, "max_output_tokens": 16_000}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "openai": {"plugin": "openai", "base_url": f"{urls['openai']}/v1"},
                "anthropic": {"plugin": "anthropic", "base_url": urls["anthropic"]},
                "gemini": {"plugin": "gemini", "base_url": f"{urls['gemini']}/v1beta", "api_key": KEY},
            },
            "groups": {"default": {}},
            "models": {name: {"provider": name, "model": names[name], **rest} for name in ANSWERS},
        },
        demo=True,
    )


async def answered(base_url: str, key: CreatedKey, dialect: str) -> tuple[Any, list[tuple[str, Any]]]:
    """The response to the request, and its events."""
    client = Client(base_url.replace("localhost", "127.0.0.1"), {"Authorization": f"Bearer {key.text}", **HEADERS})
    body = {**REQUEST, "model": dialect}
    async with client.request("POST", "/v1/messages?beta=true", json=body) as response:
        return response, events(await response.text()) if response.status == 200 else [("", await response.text())]


@pytest.mark.parametrize("dialect", ANSWERS)
async def test_request_is_answered_with_a_whole_stream(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstreams: dict[str, FakeUpstream], dialect: str
) -> None:
    upstreams[dialect].enqueue(ANSWERS[dialect])
    response, found = await answered(base_url, api_key, dialect)
    assert response.status == 200, found
    assert [found[0][0], found[-1][0]] == ["message_start", "message_stop"]
    assert found[-2][1]["delta"]["stop_reason"] == "end_turn"
    left_out = response.headers["x-gateway-dropped-params"].split(",")
    assert (
        left_out == ["max_tokens"]
        if dialect == "anthropic"
        else sorted(left_out) == ["cache_control", "context_management", "max_tokens"]
    )


async def test_openai_upstream_gets_a_chat_request(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstreams: dict[str, FakeUpstream]
) -> None:
    upstreams["openai"].enqueue(ANSWERS["openai"])
    await answered(base_url, api_key, "openai")
    seen = upstreams["openai"].seen[0].json
    roles = [message["role"] for message in seen["messages"]]
    assert roles == ["system", "user", "system", "assistant", "tool", "tool"]
    calls = seen["messages"][3]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_abc-1", "chatcmpl-tool-2"]
    assert [message["tool_call_id"] for message in seen["messages"][4:]] == ["call_abc-1", "chatcmpl-tool-2"]
    assert seen["messages"][5]["content"] == "Error: No such file"
    assert seen["reasoning_effort"] == "high"
    assert len(seen["user"]) == 64  # a hash, as OpenAI refuses a longer one
    assert b"cache_control" not in upstreams["openai"].seen[0].body
    assert b"thinking" not in upstreams["openai"].seen[0].body
    assert {"context_management", "output_config", "metadata", "system"}.isdisjoint(seen)


async def test_anthropic_upstream_gets_what_was_sent(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstreams: dict[str, FakeUpstream]
) -> None:
    upstreams["anthropic"].enqueue(ANSWERS["anthropic"])
    await answered(base_url, api_key, "anthropic")
    seen = upstreams["anthropic"].seen[0]
    assert seen.json == {**REQUEST, "model": "claude-sonnet-5", "max_tokens": 16_000}
    assert seen.headers["anthropic-beta"] == HEADERS["anthropic-beta"]
    assert seen.headers["anthropic-version"] == "2023-06-01"

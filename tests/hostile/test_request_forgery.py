"""A request body cannot make the gateway, or an upstream that is a gateway itself, go anywhere or be anyone."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from gateway.schemas.forbidden import FORBIDDEN_FIELDS
from gateway.testing import FakeUpstream

from .conftest import Client

URLS = [
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "ftp://example.com/a.png",
    "javascript:alert(1)",
    "unix:/var/run/docker.sock",
    "//example.com/a.png",
    "example.com/a.png",
    "HTTPS",
    "https:",
    "https://",
    "",
    " https://example.com/a.png",
    "https://example.com/a\r\nX-Injected: 1",
    "data:text/html;base64,PHNjcmlwdD4=",
    "data:image/png,notbase64",
    "data:",
    "jar:https://example.com!/",
]
EVIL = "https://evil.example/v1"


@pytest.mark.parametrize("url", URLS)
async def test_image_that_is_neither_https_nor_data_is_refused(
    client: Client, upstream: FakeUpstream, url: str
) -> None:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    response, body = await client.chat(messages=[{"role": "user", "content": parts}])
    assert response.status == 400, body
    assert body["error"]["param"].startswith("messages[0].content[1]")
    assert not upstream.seen


@pytest.mark.holds("prices.md#estimates-20")
async def test_image_is_passed_on_and_never_fetched(client: Client, upstream: FakeUpstream) -> None:
    parts = [{"type": "image_url", "image_url": {"url": f"{upstream.url.replace('http:', 'https:')}/image.png"}}]
    response, _ = await client.chat(messages=[{"role": "user", "content": parts}])
    assert response.status == 200
    assert [seen.path for seen in upstream.seen] == ["/v1/chat/completions"]


def spelled(name: str) -> list[str]:
    return [name, name.upper(), name.replace("_", "-"), name.title()]


def everywhere(field: str) -> dict[str, Any]:
    """A request that carries `field` at the top, and at any depth of objects that are passed on unread."""
    evil = {field: EVIL}
    return {
        **evil,
        "extension": {"deep": [{"deeper": evil}, [[evil]]], **evil},
        "prediction": {"type": "content", "content": "x", **evil},
        "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Brest"}}, **evil},
        "prompt_cache_options": {"mode": "implicit", **evil},
        "stream_options": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FORBIDDEN_FIELDS - {"headers"}))
async def test_forbidden_field_never_reaches_the_upstream_from_any_depth(
    client: Client, upstream: FakeUpstream, name: str
) -> None:
    for field in spelled(name):
        upstream.seen.clear()
        response, body = await client.chat(**everywhere(field))
        assert response.status == 200, body
        assert [seen.path for seen in upstream.seen] == ["/v1/chat/completions"]
        sent = upstream.seen[0]
        assert "evil.example" not in sent.body.decode()
        assert "evil.example" not in str(sent.headers)
        assert sent.json["model"] == "upstream-m1"


async def test_schema_of_a_tool_may_use_any_name(client: Client, upstream: FakeUpstream) -> None:
    """There such a name is a word of the caller's own, which no upstream heeds."""
    schema = {"type": "object", "properties": {"password": {"type": "string"}, "base_url": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "log_in", "parameters": schema}}]
    response, _ = await client.chat(tools=tools)
    assert response.status == 200
    assert upstream.seen[0].json["tools"] == tools


@pytest.mark.parametrize("field", ["api_base", "apiBase", "APIKEY", "base-url", "Extra_Headers"])
async def test_forbidden_field_in_a_message_never_reaches_the_upstream(
    client: Client, upstream: FakeUpstream, field: str
) -> None:
    evil = {field: EVIL}
    parts = [{"type": "text", "text": "Hi", **evil}]
    answer = {"role": "assistant", "content": "Hello", "thinking_blocks": [{"type": "thinking", **evil}]}
    messages = [{"role": "system", "content": "Hi", "x": evil}, {"role": "user", "content": parts}, answer]
    response, body = await client.chat(messages=[*messages, {"role": "user", "content": "Go on"}])
    assert response.status == 200, body
    assert "evil.example" not in upstream.seen[0].body.decode()
    assert [message["role"] for message in upstream.seen[0].json["messages"]] == ["system", "user", "assistant", "user"]
    assert response.headers["x-gateway-dropped-params"].count("messages.") == 3


async def test_forbidden_field_in_a_large_message_never_reaches_the_upstream(
    client: Client, upstream: FakeUpstream
) -> None:
    text = "word " * 400_000
    document = {"model": "m1", "messages": [{"role": "user", "content": text, "apiBase": EVIL}]}
    body = io.BytesIO(json.dumps(document).encode())
    async with client.request("POST", "/v1/chat/completions", data=body) as response:
        assert response.status == 200
    assert upstream.seen[0].json["messages"] == [{"role": "user", "content": text}]


async def test_words_of_the_caller_are_not_searched_for_forbidden_names(client: Client, upstream: FakeUpstream) -> None:
    words = {"password": "a", "host": "b", "models": {"api_key": "c"}}
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"host":"b"}'}, "input": words}
    messages = [
        {"role": "user", "content": "Hi", "metadata": words},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    custom = {"schema": words, "metadata": words}
    sent = {"messages": messages, "guided_json": {"properties": words}, "custom_field": custom}
    response, _ = await client.chat(**sent)
    assert response.status == 200
    assert {name: upstream.seen[0].json[name] for name in sent} == sent


async def test_headers_of_a_caller_are_not_forwarded(client: Client, upstream: FakeUpstream) -> None:
    odd = {
        "X-Forwarded-For": "1.2.3.4",
        "Cookie": "session=evil",
        "OpenAI-Organization": "org-evil",
        "X-Api-Key": "evil",
        "X-Upstream-Url": EVIL,
    }
    client.headers = {**client.headers, **odd}
    response, _ = await client.chat()
    assert response.status == 200
    assert "evil" not in str(upstream.seen[0].headers)
    assert upstream.seen[0].headers["authorization"] == "Bearer sk-upstream-canary-0123456789"


async def test_headers_of_an_upstream_are_not_forwarded(client: Client, upstream: FakeUpstream) -> None:
    def marked(seen: Any) -> Any:
        reply = answer(seen)
        reply.headers = {
            **reply.headers,
            "Set-Cookie": "a=evil",
            "X-Odd": "evil",
            "x-request-id": "evil",
            "Via": "evil",
        }
        return reply

    answer, upstream.answer = upstream.answer, marked
    for stream in (False, True):
        response = (await client.stream())[0] if stream else (await client.chat())[0]
        assert response.status == 200
        assert "evil" not in str(dict(response.headers))

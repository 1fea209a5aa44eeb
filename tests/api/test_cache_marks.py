"""Marks for the prompt cache on parts of messages: each server gets them in its own word, or the caller is told."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway import ChatRequest, Target, Upstream
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.cache_marks import MOST_MARKS, taken, with_marks
from tests.api.conftest import Client
from tests.dialects.answers import Answer, reply

OPENAI, ANTHROPIC = "prompt_cache_breakpoint", "cache_control"
LONG = {"mode": "explicit", "ttl": "12h"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
SHORT = {"type": "ephemeral"}
PLAIN = {"type": "text", "text": "Short"}

#: Options of a provider, the model's name there, and what becomes of a mark of OpenAI's and one of Anthropic's.
SERVERS: dict[str, tuple[dict[str, Any], str, Any, Any]] = {
    "openai": ({"cache_marks": "openai"}, "gpt-5.6-sol", (OPENAI, LONG), (OPENAI, LONG)),
    "older": ({"cache_marks": "openai"}, "gpt-4.1", (OPENAI, LONG), None),
    "openrouter": ({"preset": "openrouter"}, "anthropic/claude-opus-5", (ANTHROPIC, HOUR), (ANTHROPIC, HOUR)),
    "unknown": ({}, "some-model", (OPENAI, LONG), (ANTHROPIC, HOUR)),
    **{
        preset: ({"preset": preset}, "some-model", None, None)
        for preset in ("mistral", "deepseek", "groq", "xai", "together", "vllm", "llamacpp", "ollama")
    },
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model on a provider for each row of `SERVERS`, and one in each other dialect."""
    openai = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    providers: dict[str, Any] = {name: {**openai, **options} for name, (options, *_) in SERVERS.items()}
    providers["gemini"] = {"plugin": "gemini", "base_url": f"{upstream.url}/v1beta", "api_key": "AIzaSyCanary01234567"}
    providers["both"] = {**openai, "responses": True}
    providers["bare"] = {**openai, "responses": True, "responses_fields": []}
    model = {"price": {"input": 1, "output": 2}, "retries": 0}
    models = {name: {**model, "provider": name, "model": at} for name, (_, at, _, _) in SERVERS.items()}
    models |= {name: {**model, "provider": name} for name in ("gemini", "both", "bare")}
    return parse({"store": {"data_dir": str(tmp_path)}, "providers": providers, "models": models}, demo=True)


async def ask(client: Client, upstream: FakeUpstream, path: str, **fields: Any) -> tuple[Any, str]:
    """What the upstream gets, and the names that the caller is told."""
    upstream.answer = partial(reply, Answer("Hi"))
    async with client.request("POST", path, json=fields) as response:
        assert response.status == 200, await response.text()
        return upstream.seen[-1].json, response.headers.get("x-gateway-dropped-params", "")


def marked(name: str, value: Any) -> list[dict[str, Any]]:
    long = {"type": "text", "text": "Long", name: value}
    return [{"role": "system", "content": [long]}, {"role": "user", "content": [long, PLAIN]}]


@pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])
@pytest.mark.parametrize("server", SERVERS)
async def test_each_server_gets_its_own_word(client: Client, upstream: FakeUpstream, server: str, name: str) -> None:
    *_, of_openai, of_anthropic = SERVERS[server]
    wanted = of_openai if name == OPENAI else of_anthropic
    messages = marked(name, LONG if name == OPENAI else HOUR)
    sent, named = await ask(client, upstream, "/v1/chat/completions", model=server, messages=messages)
    part = {"type": "text", "text": "Long", **({wanted[0]: wanted[1]} if wanted else {})}
    assert [message["content"] for message in sent["messages"]] == [[part], [part, PLAIN]]
    assert named == ("" if wanted else name)


async def test_marks_for_gemini_are_named(client: Client, upstream: FakeUpstream) -> None:
    messages = marked(OPENAI, LONG)
    sent, named = await ask(client, upstream, "/v1/chat/completions", model="gemini", messages=messages)
    assert (named, "Long" in str(sent), "cache" in str(sent)) == (OPENAI, True, False)


@pytest.mark.parametrize("server", [*SERVERS, "gemini"])
async def test_options_of_the_cache_are_named_where_they_are_left_out(
    client: Client, upstream: FakeUpstream, server: str
) -> None:
    asked = {"messages": [{"role": "user", "content": "Hi"}], "prompt_cache_options": {"mode": "explicit"}}
    sent, named = await ask(client, upstream, "/v1/chat/completions", model=server, **asked)
    is_taken = server in {"openai", "older", "openrouter", "unknown"}
    assert ("prompt_cache_options" in sent, named) == (is_taken, "" if is_taken else "prompt_cache_options")


@pytest.mark.parametrize(
    ("server", "mark"), [("openrouter", (ANTHROPIC, SHORT)), ("openai", (OPENAI, {"mode": "explicit"}))]
)
async def test_marks_of_a_messages_request_reach_a_server_that_has_them(
    client: Client, upstream: FakeUpstream, server: str, mark: tuple[str, Any]
) -> None:
    """An agent of Anthropic's dialect would otherwise pay the full price of the prompt in each turn."""
    system = [{"type": "text", "text": "Rules", ANTHROPIC: SHORT}]
    turns = [{"role": "user", "content": [{"type": "text", "text": "Hi", ANTHROPIC: SHORT}]}]
    sent, named = await ask(client, upstream, "/v1/messages", model=server, max_tokens=9, system=system, messages=turns)
    texts = [message["content"] for message in sent["messages"]]
    assert texts == [[{"type": "text", "text": text, mark[0]: mark[1]}] for text in ("Rules", "Hi")]
    assert named == ""


@pytest.mark.parametrize("server", ["vllm", "unknown"])
async def test_marks_of_a_messages_request_are_named_elsewhere(
    client: Client, upstream: FakeUpstream, server: str
) -> None:
    system = [{"type": "text", "text": "Rules", ANTHROPIC: SHORT}]
    turns = [{"role": "user", "content": "Hi"}]
    sent, named = await ask(client, upstream, "/v1/messages", model=server, max_tokens=9, system=system, messages=turns)
    assert [message["content"] for message in sent["messages"]] == ["Rules", "Hi"]
    assert named == ANTHROPIC


@pytest.mark.holds("providers/openai.md#presets-3")
@pytest.mark.parametrize(
    ("server", "name", "is_kept"), [("both", OPENAI, True), ("both", ANTHROPIC, False), ("bare", OPENAI, False)]
)
async def test_forwarded_responses_request_keeps_marks_where_the_server_has_them(
    client: Client, upstream: FakeUpstream, server: str, name: str, is_kept: bool
) -> None:
    part = {"type": "input_text", "text": "Long", name: LONG if name == OPENAI else HOUR}
    items = [{"role": "user", "content": [part]}, {"role": "user", "content": "Hi"}]
    sent, named = await ask(client, upstream, "/v1/responses", model=server, input=items)
    assert sent["input"][0]["content"] == [part if is_kept else {"type": "input_text", "text": "Long"}]
    assert sent["input"][1] == items[1]
    assert named == ("" if is_kept else name)


async def test_mark_of_a_responses_request_carries_nothing_else(client: Client, upstream: FakeUpstream) -> None:
    mark = {**HOUR, "api_base": "http://evil.example", "scope": "global"}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Long", ANTHROPIC: mark}]}]
    sent, named = await ask(client, upstream, "/v1/responses", model="openrouter", input=items)
    assert sent["messages"][0]["content"] == [{"type": "text", "text": "Long", ANTHROPIC: HOUR}]
    assert "api_base" in named


def request(*messages: dict[str, Any]) -> ChatRequest:
    return decode_chat_request(msgspec.json.encode({"model": "m", "messages": messages}))


def test_anthropic_gets_the_last_marks_of_a_request() -> None:
    parts = [{"type": "text", "text": str(number), OPENAI: {"mode": "explicit"}} for number in range(6)]
    asked = request({"role": "user", "content": parts})
    [sent] = msgspec.json.decode(with_marks(asked, asked.fields["messages"], Target("p", "m", "m"), "anthropic"))
    kept = [part["text"] for part in sent["content"] if ANTHROPIC in part]
    assert kept == ["2", "3", "4", "5"] and len(kept) == MOST_MARKS
    assert OPENAI not in str(sent)


def test_mark_in_another_place_is_none() -> None:
    """A schema of a tool may have a member of this name."""
    schema = {"type": "object", "properties": {ANTHROPIC: {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    assert decode_chat_request(msgspec.json.encode(body)).cache_marks == frozenset()


@pytest.mark.parametrize(
    ("model", "is_explicit"),
    [
        ("gpt-5.6", True),
        ("gpt-5.6-sol", True),
        ("gpt-5.10", True),
        ("gpt-6-astra", True),
        ("gpt-10", True),
        ("gpt-5", False),
        ("gpt-5.5", False),
        ("gpt-5-mini", False),
        ("gpt-4.1", False),
        ("o3", False),
    ],
)
def test_only_models_with_explicit_breakpoints_get_a_mapped_mark(model: str, is_explicit: bool) -> None:
    asked = request({"role": "user", "content": [{"type": "text", "text": "a", ANTHROPIC: SHORT}]})
    assert (ANTHROPIC in taken(asked, Target("p", model, model), "openai")) == is_explicit


def test_openrouter_gets_the_session_in_its_header_and_in_the_body() -> None:
    options = OpenAIProvider.Options(preset="openrouter")
    subject = OpenAIProvider(options, Upstream())
    assert (subject.session_header, subject.takes_cache_key) == ("x-session-id", True)
    elsewhere = msgspec.structs.replace(options, base_url="https://openrouter.ai.example/v1")
    assert OpenAIProvider(elsewhere, Upstream()).session_header == ""

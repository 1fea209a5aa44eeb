"""Callers get through the gateway what llama.cpp answers directly, in each dialect, and it ends as it should."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from gateway.setup.found_providers import find_providers
from gateway.setup.known_providers import Server
from gateway.testing import RunningGateway, running_gateway
from tests.dialects.clients import CLIENTS, Client, Question, events
from tests.polling import until

from .llamacpp import LlamaServer, llama_server

PROMPTS = [f"Tell me about {what}." for what in ("herons", "the sea", "42", "caf\u00e9s \u2615", "a", "x" * 200)]
SYSTEM = "Be short."  # of each client
LIMIT = 60  # tokens
UPSTREAMS = ("tiny", "over-responses", "over-messages")

every_client = pytest.mark.parametrize("dialect", CLIENTS, ids=lambda one: one.name)
either_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class Asked:
    """The answer to one request."""

    def __init__(self, status: int, text: str, headers: Any) -> None:
        self.status, self.text, self.headers = status, text, headers


async def ask(served: RunningGateway, path: str, body: Any, **headers: str) -> Asked:
    """Ask the gateway."""
    sent = {"Authorization": f"Bearer {served.api_key}", "anthropic-version": "2023-06-01", **headers}
    url = served.base_url.removesuffix("/v1") + path
    async with aiohttp.ClientSession(headers=sent) as session, session.post(url, json=body) as response:
        return Asked(response.status, await response.text(), response.headers)


def at_zero(dialect: Client, model: str, question: Question, *, stream: bool) -> tuple[str, Any]:
    """The request of a client, with the temperature 0 and the limit."""
    path, body = dialect.ask(model, question, stream=stream)
    if dialect.name == "gemini":
        body["generationConfig"] = {**body.get("generationConfig", {}), "temperature": 0, "maxOutputTokens": LIMIT}
    else:
        body |= {"temperature": 0, "max_output_tokens" if dialect.name == "responses" else "max_tokens": LIMIT}
    return path, body


def direct(server: LlamaServer, text: str, **more: Any) -> Any:
    """The same question to the server itself."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    body = {"messages": messages, "temperature": 0, "max_tokens": LIMIT, **more}
    return server.ask("/v1/chat/completions", body)


# What is said ---------------------------------------------------------------------------------------------------------


async def test_init_finds_the_model_with_its_name_and_the_window_of_a_slot(one: LlamaServer) -> None:
    [found] = await find_providers({}, servers=[Server("vllm", "vLLM", one.port)])
    assert (found.name, found.options["preset"]) == ("llamacpp", "llamacpp")
    [(name, model)] = found.models.items()
    assert (name, model.upstream, model.context_window) == ("tiny", one.model, 2048)


@either_way
@every_client
@pytest.mark.parametrize("model", UPSTREAMS)
async def test_texts_and_counts_are_those_of_a_direct_call(
    served: RunningGateway, one: LlamaServer, model: str, dialect: Client, stream: bool
) -> None:
    for text in PROMPTS:
        theirs = direct(one, text)
        answered = await ask(served, *at_zero(dialect, model, Question(text=text), stream=stream))
        assert answered.status == 200, answered.text
        got = dialect.read(answered.text, stream=stream)
        choice = theirs["choices"][0]
        assert got.text == choice["message"]["content"]
        is_cut = choice["finish_reason"] == "length" and (model, dialect.name) != ("over-responses", "responses")
        assert got.finish == dialect.words["length" if is_cut else "stop"]  # llama.cpp's Responses API never says so
        usage = theirs["usage"]
        assert (got.tokens[0], got.tokens[2]) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert "temperature" not in answered.headers.get("x-gateway-dropped-params", "")


@either_way
@every_client
async def test_answer_follows_a_schema(served: RunningGateway, dialect: Client, stream: bool) -> None:
    path, body = at_zero(dialect, "tiny", Question(structured=True), stream=stream)
    answered = await ask(served, path, body)
    assert answered.status == 200, answered.text
    got = dialect.read(answered.text, stream=stream)
    if got.finish == dialect.words["stop"]:
        assert set(json.loads(got.text)) == {"port"}
    else:
        assert got.text.lstrip().startswith("{")  # random weights may say a text that has no end


async def test_logprobs_have_the_members_of_the_standard(served: RunningGateway) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "temperature": 0}
    answered = await ask(served, "/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 2})
    content = json.loads(answered.text)["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    for place in content:
        assert set(place) == {"token", "logprob", "bytes", "top_logprobs"}
        assert all(set(one) == {"token", "logprob", "bytes"} for one in place["top_logprobs"])


async def test_stop_seed_and_bias_have_their_effect(served: RunningGateway, one: LlamaServer) -> None:
    whole = direct(one, "Hi", max_tokens=40)["choices"][0]["message"]["content"]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 40, "temperature": 0}
    stop = whole[10:13]
    answered = json.loads((await ask(served, "/v1/chat/completions", {**body, "stop": [stop]})).text)
    assert answered["choices"][0]["message"]["content"] == whole[: whole.index(stop)]
    assert answered["choices"][0]["finish_reason"] == "stop"
    drawn = [
        json.loads((await ask(served, "/v1/chat/completions", {**body, "temperature": 1.0, "seed": seed})).text)
        for seed in (7, 7, 8)
    ]
    texts = [one["choices"][0]["message"]["content"] for one in drawn]
    assert texts[0] == texts[1] != texts[2]
    token = str(3 + whole.encode()[0])  # the tokens of bytes follow three others
    biased = json.loads((await ask(served, "/v1/chat/completions", {**body, "logit_bias": {token: -100}})).text)
    assert whole[0] not in biased["choices"][0]["message"]["content"]


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_are_those_of_a_direct_call(served: RunningGateway, long: LlamaServer, encoding: str) -> None:
    texts = ["a heron", "a gull"]
    theirs = [one["embedding"] for one in long.ask("/v1/embeddings", {"input": texts})["data"]]
    body = {"model": "vectors", "input": texts, "encoding_format": encoding}
    answered = json.loads((await ask(served, "/v1/embeddings", body)).text)
    ours = [one["embedding"] for one in answered["data"]]
    if encoding == "base64":
        ours = [list(struct.unpack(f"<{len(theirs[0])}f", base64.b64decode(one))) for one in ours]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, abs=1e-6)


# Too long -------------------------------------------------------------------------------------------------------------


@either_way
@every_client
@pytest.mark.parametrize("model", UPSTREAMS)
async def test_prompt_beyond_the_window_is_told_as_such(
    served: RunningGateway, model: str, dialect: Client, stream: bool
) -> None:
    path, body = dialect.ask(model, Question(text="word " * 600), stream=stream)
    answered = await ask(served, path, body)
    assert answered.status == 400, answered.text
    said = answered.text.lower()
    assert "context_length_exceeded" in said or "prompt is too long" in said, answered.text


@either_way
async def test_prompt_beyond_the_window_is_answered_by_a_fallback_with_a_larger_one(
    served: RunningGateway, stream: bool
) -> None:
    dialect = CLIENTS[0]
    path, body = at_zero(dialect, "with-fallback", Question(text="word " * 600), stream=stream)
    answered = await ask(served, path, body)
    assert answered.status == 200, answered.text
    assert dialect.read(answered.text, stream=stream).tokens[0] > 2048


# Who leaves, and what dies --------------------------------------------------------------------------------------------


async def test_slot_is_free_within_a_second_of_the_callers_leaving(served: RunningGateway, one: LlamaServer) -> None:
    body = {
        "model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1000,
        "stream": True, "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {served.api_key}"}
    asked = [
        asyncio.create_task(_leave_after_first(f"{served.base_url}/chat/completions", body, headers)) for _ in range(4)
    ]
    await asyncio.gather(*asked)
    left = time.monotonic()
    await until(lambda: asyncio.to_thread(lambda: one.busy == 0))
    assert time.monotonic() - left < 1.0


async def _leave_after_first(url: str, body: Any, headers: dict[str, str]) -> None:
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as response:
        await response.content.readany()


async def test_calls_over_two_servers_are_all_answered_when_one_is_killed(one: LlamaServer, model_file: Any) -> None:
    """400 calls; the audit is clean, and each call has one charge."""
    with llama_server(model_file) as dying:
        config = f"""
[providers.one]
plugin = "openai"
preset = "llamacpp"
base_url = "{one.url}/v1"
[providers.two]
plugin = "openai"
preset = "llamacpp"
base_url = "{dying.url}/v1"
[groups.default]
[models.both]
targets = [{{ provider = "one", model = "tiny" }}, {{ provider = "two", model = "tiny" }}]
strategy = "weighted"
price = {{ input = 1, output = 2 }}
"""
        with running_gateway(config) as served:
            body = {"model": "both", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
            statuses: Counter[int] = Counter()

            async def caller(number: int) -> None:
                for _ in range(25):
                    statuses[(await ask(served, "/v1/chat/completions", body)).status] += 1
                    if number == 0 and sum(statuses.values()) > 200 and dying.process.poll() is None:
                        await asyncio.to_thread(dying.kill)

            await asyncio.gather(*map(caller, range(16)))
            assert statuses == {200: 400}
            assert dying.process.poll() is not None


# Prompt caches --------------------------------------------------------------------------------------------------------

TURNS = 8


@pytest.fixture(params=CLIENTS, ids=lambda one: one.name)
def dialect_of_cache(request: pytest.FixtureRequest) -> Iterator[Client]:
    yield request.param


async def cached_tokens(served: RunningGateway, dialect: Client, model: str, session: str) -> int:
    """What the upstream took from its cache in the turns of a session that grows by 100 tokens each."""
    text, cached = f"Session {session}. ", 0
    for turn in range(TURNS):
        text += f"Turn {turn}: " + "tell me more of the herons. " * 3
        answered = await ask(
            served, *at_zero(dialect, model, Question(text=text), stream=False), **{"x-session-id": session}
        )
        assert answered.status == 200, answered.text
        cached += dialect.read(answered.text, stream=False).tokens[1]
    return cached


async def test_sessions_keep_their_cache_over_two_servers(served: RunningGateway, dialect_of_cache: Client) -> None:
    """As many tokens come from the cache as with one server; without affinity fewer do."""
    name = dialect_of_cache.name
    single = sum([await cached_tokens(served, dialect_of_cache, "tiny", f"{name}-s{n}") for n in range(4)])
    both = sum([await cached_tokens(served, dialect_of_cache, "both", f"{name}-b{n}") for n in range(4)])
    apart = sum([await cached_tokens(served, dialect_of_cache, "both-apart", f"{name}-a{n}") for n in range(4)])
    print(f"\n{name}: {single} of one server, {both / single:.3f} with affinity, {apart / single:.3f} without")
    assert both >= 0.99 * single
    assert apart < both


def test_events_are_read() -> None:
    assert events('data: {"a": 1}\n\ndata: [DONE]\n\n') == [{"a": 1}]

"""Callers get through the gateway what llama.cpp answers directly, in each dialect."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator

import pytest

from gateway.setup.found_providers import find_providers
from gateway.setup.known_providers import Server
from gateway.testing import RunningGateway
from tests.dialects.clients import CLIENTS, Client, Question, events
from tests.polling import until

from .asking import PROMPTS, ask, at_zero, charges, check_texts, check_too_long, direct, hi
from .llamacpp import LlamaServer

#: The beginning of an answer by the schema, up to anywhere: white space, then `{"port": "…"}`.
BEGINNING = re.compile(r'\s*(\{\s*("(p(o(r(t("\s*(:\s*("([^"\\]|\\.)*(\\|"\s*)?)?)?)?)?)?)?)?)?)?')
UPSTREAMS = ("tiny", "over-responses", "over-messages")

every_client = pytest.mark.parametrize("dialect", CLIENTS, ids=lambda one: one.name)
either_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


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
    told = (model, dialect.name) != ("over-responses", "responses")  # llama.cpp's Responses API never says so
    await check_texts(served, one, model, dialect, stream=stream, told=told)


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
        assert BEGINNING.fullmatch(got.text)  # random weights may say a text that has no end


async def test_logprobs_have_the_members_of_the_standard(served: RunningGateway) -> None:
    answered = await ask(served, "/v1/chat/completions", hi("tiny", max_tokens=5, logprobs=True, top_logprobs=2))
    content = json.loads(answered.text)["choices"][0]["logprobs"]["content"]
    assert len(content) == 5
    for place in content:
        assert set(place) == {"token", "logprob", "bytes", "top_logprobs"}
        assert all(set(one) == {"token", "logprob", "bytes"} for one in place["top_logprobs"])


async def test_stop_seed_and_bias_have_their_effect(served: RunningGateway, one: LlamaServer) -> None:
    whole, body = direct(one, "Hi", max_tokens=40)["choices"][0]["message"]["content"], hi("tiny")
    stop = whole[10:13]
    answered = (await ask(served, "/v1/chat/completions", {**body, "stop": [stop]})).json
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


async def test_answer_follows_a_grammar(served: RunningGateway) -> None:
    answered = await ask(served, "/v1/chat/completions", hi("tiny", grammar='root ::= "heron" | "gull"'))
    assert answered.json["choices"][0]["message"]["content"] in ("heron", "gull")
    assert answered.json["choices"][0]["finish_reason"] == "stop"


async def test_choices_are_those_of_a_direct_call(served: RunningGateway, one: LlamaServer) -> None:
    said = direct(one, "Hi", max_tokens=40)["choices"][0]["message"]["content"]
    whole = (await ask(served, "/v1/chat/completions", hi("tiny", n=2))).json
    assert [choice["message"]["content"] for choice in whole["choices"]] == [said, said]
    text = (await ask(served, "/v1/chat/completions", hi("tiny", n=2, stream=True))).text
    parts = ["", ""]
    for chunk in events(text):
        for choice in chunk["choices"]:
            parts[choice["index"]] += choice["delta"].get("content") or ""
    assert parts == [said, said]


async def test_prompt_of_a_token_for_each_byte_is_charged_as_the_server_counts(
    served: RunningGateway, one: LlamaServer
) -> None:
    """The vocabulary has no longer tokens, so the estimate is low, and the hold must be enough all the same."""
    before = len(charges(served))
    for text in PROMPTS:
        answered = await ask(served, *at_zero(CLIENTS[0], "tiny", Question(text=text), stream=False))
        assert answered.status == 200, answered.text
    await until(lambda: len(charges(served)) == before + len(PROMPTS))
    for text, line in zip(PROMPTS, charges(served)[before:], strict=True):
        theirs, used = direct(one, text)["usage"], line["usage"]
        assert used.get("in_text", 0) + used.get("in_cached", 0) == theirs["prompt_tokens"]
        assert used["out_text"] == theirs["completion_tokens"]
        assert not line.get("estimated")
        messages = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": text}]}
        ours = (await ask(served, "/v1/messages/count_tokens", messages)).json["input_tokens"]
        real = one.ask("/v1/messages/count_tokens", messages)["input_tokens"]
        print(f"{len(text)} characters: {ours} by our estimate, {real} by the server")
        assert ours <= real


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


async def test_text_beyond_a_batch_is_too_long_for_embeddings(served: RunningGateway) -> None:
    """It fits into the window, and the server refuses it with status 500."""
    answered = await ask(served, "/v1/embeddings", {"model": "vectors", "input": "x" * 600})
    assert (answered.status, answered.json["error"]["code"]) == (400, "context_length_exceeded")


# Too long -------------------------------------------------------------------------------------------------------------


@either_way
@every_client
@pytest.mark.parametrize("model", UPSTREAMS)
async def test_prompt_beyond_the_window_is_told_as_such(
    served: RunningGateway, model: str, dialect: Client, stream: bool
) -> None:
    await check_too_long(served, model, dialect, stream=stream)


@either_way
async def test_prompt_beyond_the_window_is_answered_by_a_fallback_with_a_larger_one(
    served: RunningGateway, stream: bool
) -> None:
    dialect = CLIENTS[0]
    path, body = at_zero(dialect, "with-fallback", Question(text="word " * 600), stream=stream)
    answered = await ask(served, path, body)
    assert answered.status == 200, answered.text
    assert dialect.read(answered.text, stream=stream).tokens[0] > 2048


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

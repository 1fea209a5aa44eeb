"""Bedrock and Cohere through a whole gateway, asked by an unmodified OpenAI client."""

from __future__ import annotations

from typing import Any

import msgspec
import openai
import pytest

from gateway.testing import FakeUpstream, running_gateway
from tests.providers.cohere_dialect import KEY as COHERE_KEY
from tests.providers.cohere_dialect import cohere
from tests.providers.cohere_dialect import failure as cohere_failure
from tests.providers.converse_dialect import BUDGET, REGION, SECRET, converse, frames, streamed
from tests.providers.converse_dialect import KEY_ID as AWS_KEY_ID
from tests.providers.converse_dialect import failure as bedrock_failure

pytestmark = pytest.mark.slow

CONFIG = """
[providers.bedrock]
plugin = "bedrock"
region = "{region}"
base_url = "{bedrock}"
access_key_id = "env:TEST_AWS_KEY_ID"
secret_access_key = "env:TEST_AWS_SECRET"

[providers.cohere]
plugin = "cohere"
base_url = "{cohere}"
api_key = "env:TEST_COHERE_KEY"

[models.claude]
provider = "bedrock"
model = "{model}"
groups = ["default"]
price = {{ input = 3, output = 15 }}

[models.command]
provider = "cohere"
model = "command-a-03-2025"
groups = ["default"]
price = {{ input = 2, output = 8 }}

[models.embed]
provider = "cohere"
model = "embed-v4.0"
groups = ["default"]
endpoints = ["embeddings"]
price = {{ input = 0.1 }}

[groups.default]
"""
ASKED: Any = [{"role": "user", "content": "Repeat these words"}]


async def test_openai_client_reaches_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AWS_KEY_ID", AWS_KEY_ID)
    monkeypatch.setenv("TEST_AWS_SECRET", SECRET)
    monkeypatch.setenv("TEST_COHERE_KEY", COHERE_KEY)
    async with FakeUpstream(converse) as aws, FakeUpstream(cohere) as co:
        config = CONFIG.format(region=REGION, bedrock=aws.url, cohere=co.url, model=BUDGET)
        with running_gateway(config) as gateway:
            async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.api_key, max_retries=0) as client:
                for model in ("claude", "command"):
                    await _chats(client, model)
                await _calls_tools(client, aws)
                await _embeds(client, co)
                await _fails(client, aws, co)
            log = gateway.log.read_text()
    assert SECRET not in log and COHERE_KEY not in log and AWS_KEY_ID not in log


async def _chats(client: openai.AsyncOpenAI, model: str) -> None:
    answer = await client.chat.completions.create(model=model, messages=ASKED)
    assert answer.choices[0].message.content == "Repeat these words " and answer.choices[0].finish_reason == "stop"
    assert answer.usage and (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 3)
    stream = await client.chat.completions.create(
        model=model, messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(part.delta.content or "" for chunk in chunks for part in chunk.choices)
    assert text == "Repeat these words " and chunks[-1].usage and chunks[-1].usage.total_tokens == 9


async def _calls_tools(client: openai.AsyncOpenAI, aws: FakeUpstream) -> None:
    aws.enqueue(streamed(*frames("tools")))
    tool: Any = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
    async with client.chat.completions.stream(model="claude", messages=ASKED, tools=[tool]) as stream:
        answer = await stream.get_final_completion()
    calls = answer.choices[0].message.tool_calls or []
    assert [msgspec.json.decode(call.function.arguments) for call in calls] == [
        {"port": "Brest", "at": {"hour": 6}},
        {"port": "Dover — west"},
        {},
    ]
    assert answer.choices[0].finish_reason == "tool_calls"


async def _embeds(client: openai.AsyncOpenAI, co: FakeUpstream) -> None:
    """With a field of Cohere's own, which passes, and one that nobody knows, which is dropped and named."""
    extra = {"input_type": "search_query", "flavour": "salty"}
    raw = await client.embeddings.with_raw_response.create(model="embed", input=["a", "bcd"], extra_body=extra)
    assert [one.embedding for one in raw.parse().data] == [[1.0, 0.5], [3.0, 0.5]]
    assert raw.headers["x-gateway-dropped-params"] == "flavour"
    assert co.seen[-1].json["input_type"] == "search_query" and "flavour" not in co.seen[-1].json
    with pytest.raises(openai.BadRequestError) as caught:
        await client.embeddings.create(model="embed", input="x", extra_body={"input_type": "taste"})
    assert (caught.value.param, caught.value.code) == ("input_type", "invalid_value")


async def _fails(client: openai.AsyncOpenAI, aws: FakeUpstream, co: FakeUpstream) -> None:
    before = len(aws.seen), len(co.seen)
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("claude", {"n": 2}, "n"),
        ("claude", {"response_format": {"type": "json_object"}}, "response_format.type"),
        ("command", {"logprobs": True, "top_logprobs": 2}, "top_logprobs"),
    ]
    for model, fields, param in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model=model, messages=ASKED, **fields)
        assert caught.value.param == param and str(caught.value.code).startswith("unsupported_")
    assert (len(aws.seen), len(co.seen)) == before  # refused before anything was sent
    aws.enqueue(bedrock_failure("too_long"))
    with pytest.raises(openai.BadRequestError, match="too long"):
        await client.chat.completions.create(model="claude", messages=ASKED)
    co.enqueue(*[cohere_failure("limited")] * 5)  # enough for every attempt that the gateway makes
    with pytest.raises(openai.RateLimitError):
        await client.chat.completions.create(model="command", messages=ASKED)

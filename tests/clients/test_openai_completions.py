"""The official Python SDK on completions, unmodified: whole and streamed, sync and async."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.testing import Reply, RunningGateway

from .scripted import BROKEN_TEXTS, ScriptedUpstream

pytestmark = pytest.mark.clients

PROMPTS = ["one two", "three"]


@pytest.fixture
def client(served: RunningGateway) -> Iterator[OpenAI]:
    """A client as the README makes it."""
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client


def test_several_prompts_are_completed(client: OpenAI, scripted: ScriptedUpstream) -> None:
    answer = client.completions.create(model="texts", prompt=PROMPTS, n=2, best_of=3, logprobs=1, echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == ["one twoone two "] * 2 + ["threethree "] * 2
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion" and answer.model == "texts"
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens is not None
    assert (logprobs.tokens[-1], logprobs.text_offset) == ("two ", [0, 7, 11])
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 9)
    assert scripted.seen[0].path.endswith("/completions")


def test_token_numbers_are_passed_on(client: OpenAI, scripted: ScriptedUpstream) -> None:
    answer = client.completions.create(model="texts", prompt=[[1, 2], [3]], max_tokens=0, echo=True)
    assert [(choice.text, choice.finish_reason) for choice in answer.choices] == [("1 2", "length"), ("3", "length")]
    assert answer.usage is not None and answer.usage.completion_tokens == 0
    assert scripted.seen[0].json["prompt"] == [[1, 2], [3]]


def test_stream_ends_with_its_usage(client: OpenAI) -> None:
    texts, finishes, usage = Counter[int](), [], None
    options: Any = {"include_usage": True}
    for chunk in client.completions.create(model="texts", prompt=PROMPTS, n=2, stream=True, stream_options=options):
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += len(choice.text.split())
            finishes += [choice.finish_reason] if choice.finish_reason else []
    assert texts == {0: 2, 1: 2, 2: 1, 3: 1}
    assert finishes == ["stop"] * 4
    assert usage is not None and usage.total_tokens == 9


def test_cut_stream_raises(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.stream(BROKEN_TEXTS, done=False))
    said = ""
    with pytest.raises(openai.APIError) as caught:
        for chunk in client.completions.create(model="texts", prompt="Hello", stream=True):
            said += chunk.choices[0].text
    assert (said, caught.value.code) == ("High tide at six", "upstream_stream_truncated")


def test_chat_model_completes_one_text(client: OpenAI, scripted: ScriptedUpstream) -> None:
    assert client.completions.create(model="scripted", prompt="Hello there").choices[0].text == "Hello there "
    assert scripted.seen[0].json["messages"] == [{"role": "user", "content": "Hello there"}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="scripted", prompt="Hello", suffix="end")
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "suffix")


def test_async_client_reads_the_same(served: RunningGateway) -> None:
    async def ask() -> tuple[str, str]:
        async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
            whole = await client.completions.create(model="texts", prompt="one two")
            stream = await client.completions.create(model="texts", prompt="one two", stream=True)
            return whole.choices[0].text, "".join([chunk.choices[0].text async for chunk in stream])

    assert asyncio.run(ask()) == ("one two ", "one two ")

"""Cohere's own SDK reads the fixtures of the tests, and reads the same from them as the provider."""

from __future__ import annotations

from typing import Any

import cohere as sdk
import msgspec
import pytest
from cohere.core.api_error import ApiError
from cohere.types import EmbedByTypeResponse
from cohere.v2.types import V2ChatResponse, V2ChatStreamResponse

from gateway.testing import FakeUpstream, Reply
from tests.providers.cohere_dialect import (
    FIXTURES,
    cohere,
    document,
    embedding,
    failure,
    folded,
    frames,
    parsed,
    provider,
    streamed,
    target,
)
from tests.providers.test_cohere_answers import calls_of, words
from tests.providers.vendor_models import faults

pytestmark = pytest.mark.slow  # the SDK takes a second to import

STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ERRORS = sorted(document("errors"))
QUESTION = [{"role": "user", "content": "hi"}]


def client(fake: FakeUpstream) -> sdk.AsyncClientV2:
    return sdk.AsyncClientV2(api_key="k", base_url=fake.url, max_retries=0)


@pytest.mark.parametrize("name", STREAMS)
def test_vendors_sdk_knows_every_field_of_an_answer(name: str) -> None:
    assert faults(document(name), V2ChatResponse) == []
    assert faults({**document(name), "message": 7}, V2ChatResponse) != []


@pytest.mark.parametrize("name", STREAMS)
def test_vendors_sdk_knows_every_field_of_a_stream(name: str) -> None:
    for found in parsed(name):
        if found["type"] == "message-start":
            message = found["delta"]["message"]  # which the SDK knows only the role of
            assert {name: message.pop(name) for name in ("content", "tool_plan", "tool_calls", "citations")}
        assert faults(found, V2ChatStreamResponse) == []


def test_vendors_sdk_knows_every_field_of_embeddings() -> None:
    assert faults(document("embed"), EmbedByTypeResponse) == []


@pytest.mark.parametrize("name", ERRORS)
async def test_vendors_sdk_raises_for_every_error(name: str) -> None:
    async with FakeUpstream(cohere) as fake:
        fake.enqueue(failure(name))
        async with client(fake) as theirs:
            with pytest.raises(ApiError) as caught:
                await theirs.chat(model="m", messages=QUESTION)  # type: ignore[arg-type]
    assert caught.value.status_code == document("errors")[name]["status"]


@pytest.mark.parametrize("name", STREAMS)
async def test_vendors_sdk_and_the_provider_read_the_same_from_a_stream(name: str) -> None:
    text, thought, calls = "", "", []
    async with FakeUpstream(cohere) as fake, client(fake) as theirs:
        fake.enqueue(streamed(*frames(name)))
        async for found in theirs.chat_stream(model="m", messages=QUESTION):  # type: ignore[arg-type]
            message = found.delta.message if getattr(found, "delta", None) and found.type != "message-end" else None
            if found.type == "content-delta":
                text += message.content.text or ""
                thought += message.content.thinking or ""
            elif found.type == "tool-plan-delta":
                thought += message.tool_plan
            elif found.type == "tool-call-start":
                calls.append([message.tool_calls.id, message.tool_calls.function.name, ""])
            elif found.type == "tool-call-delta":
                calls[-1][2] += message.tool_calls.function.arguments
    ours = await folded(streamed(*frames(name)))
    assert ((words(ours)[0] or ""), ours.choices[0].message.reasoning_content or "") == (text, thought)
    assert calls_of(ours) == [(id, name, msgspec.json.decode(arguments or "{}")) for id, name, arguments in calls]


async def test_vendors_sdk_and_the_provider_read_the_same_from_embeddings() -> None:
    asked: Any = {"model": "m", "texts": ["a", "b"], "input_type": "clustering", "embedding_types": ["float"]}
    async with FakeUpstream(cohere) as fake, provider(fake) as subject, client(fake) as vendor:
        fake.enqueue(*[Reply.json(document("embed"))] * 2)
        theirs = await vendor.embed(**asked)
        ours = await subject.embed(embedding(["a", "b"]), target())
        sent = [seen.json for seen in fake.seen]
    assert ours.vectors == theirs.embeddings.float_ and len(ours.vectors) == 2
    assert ours.usage and ours.usage.prompt_tokens == 2
    assert sent[0].keys() - sent[1].keys() == set() and sent[1]["texts"] == ["a", "b"]

"""The official Python SDK on moderations, unmodified, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.testing import RunningGateway

from .scripted import ScriptedUpstream

pytestmark = pytest.mark.clients


@pytest.fixture
def client(served: RunningGateway) -> Iterator[OpenAI]:
    """A client as the README makes it."""
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client


def test_model_may_be_omitted(client: OpenAI, scripted: ScriptedUpstream) -> None:
    answer = client.moderations.create(input="I want to kill them all.")
    [result] = answer.results
    assert (answer.model, answer.id[:5], result.flagged) == ("judge", "modr-", True)
    assert result.categories.violence and not result.categories.self_harm_intent
    assert result.category_scores.violence == 0.9
    assert result.category_applied_input_types.violence == ["text"]
    assert scripted.seen[0].path == "/v1/moderations"


def test_each_text_has_a_result(client: OpenAI) -> None:
    answer = client.moderations.create(model="omni-moderation-latest", input=["a heron", "kill"])
    assert [result.flagged for result in answer.results] == [False, True]


def test_parts_have_one_result(client: OpenAI, scripted: ScriptedUpstream) -> None:
    image = "https://images.example/heron.png"
    parts: Any = [{"type": "text", "text": "a heron"}, {"type": "image_url", "image_url": {"url": image}}]
    answer = client.moderations.create(model="judge", input=parts)
    assert [result.flagged for result in answer.results] == [False]
    assert scripted.seen[0].json["input"][1]["image_url"] == {"url": image}


def test_refused_input_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.moderations.create(model="judge", input=[])
    assert (caught.value.code, caught.value.param) == ("empty_array", "input")


async def test_async_client_gets_results(served: RunningGateway) -> None:
    async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        answer = await client.moderations.create(input=["kill"])
    assert answer.results[0].categories.violence

"""The official Python SDK on the Responses API, unmodified: over an upstream that has it, and over one that has not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel

from gateway.testing import Reply, RunningGateway
from tests.api.endpoints.test_responses_native import CALL, MESSAGE, REASONING, stream_events, streamed
from tests.api.endpoints.test_responses_native import USAGE as NATIVE_USAGE
from tests.api.endpoints.test_responses_native import response as native_response

from .scripted import BROKEN_STREAM, TEXT_STREAM, TIDE_ANSWER, TIDE_STREAM, USAGE, ScriptedUpstream, chunk, completion

pytestmark = pytest.mark.clients

PARAMETERS = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
TOOLS: list[Any] = [{"type": "function", "name": "tide", "parameters": PARAMETERS, "strict": False}]


class Tide(BaseModel):
    """A structured answer."""

    port: str
    metres: int


@pytest.fixture
def client(served: RunningGateway) -> Iterator[OpenAI]:
    """A client as the README makes it."""
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        yield client


def test_create_answers_with_text_and_usage(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": "Four."})))
    raw = client.responses.with_raw_response.create(model="scripted", input="Two and two?", instructions="Be brief.")
    answer = raw.parse()
    assert answer.output_text == "Four."
    assert (answer.status, answer.model, answer.object) == ("completed", "scripted", "response")
    assert answer.usage is not None
    assert answer.usage.total_tokens == USAGE["total_tokens"]
    assert answer._request_id == raw.headers["x-request-id"]
    messages = scripted.seen[0].json["messages"]
    assert messages[0]["content"] == "Be brief."


def test_stream_has_typed_events_and_ends_with_the_response(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TEXT_STREAM)
    with client.responses.create(model="scripted", input="Hi", stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello"


def test_helper_accumulates_text_and_calls(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TEXT_STREAM, TIDE_STREAM)
    with client.responses.stream(model="scripted", input="Hi") as stream:
        assert stream.get_final_response().output_text == "Hello"
    with client.responses.stream(model="scripted", input="Hi", tools=TOOLS) as stream:
        calls = [item for item in stream.get_final_response().output if item.type == "function_call"]
    assert [(call.call_id, call.arguments) for call in calls] == [
        ("call_1", '{"port": "Brest"}'),
        ("call_2", '{"port": "Cork"}'),
    ]


def test_call_of_a_tool_and_its_result_go_round(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(TIDE_ANSWER), Reply.json(completion({"content": "Six."})))
    asked = client.responses.create(model="scripted", input="Tide at Brest?", tools=TOOLS)
    call = asked.output[0]
    assert isinstance(call, ResponseFunctionToolCall)
    items: list[Any] = [{"role": "user", "content": "Tide at Brest?"}, *asked.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "6"})
    answer = client.responses.create(model="scripted", input=items, tools=TOOLS)
    assert answer.output_text == "Six."
    sent = scripted.seen[1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]


def test_parse_reads_a_structured_answer(client: OpenAI, scripted: ScriptedUpstream) -> None:
    record = {"port": "Brest", "metres": 6}
    scripted.enqueue(Reply.json(completion({"content": json.dumps(record)})))
    answer = client.responses.parse(model="scripted", input="Tide?", text_format=Tide)
    assert answer.output_parsed == Tide(port="Brest", metres=6)
    assert scripted.seen[0].json["response_format"]["type"] == "json_schema"


def test_reasoning_comes_before_the_answer(client: OpenAI, scripted: ScriptedUpstream) -> None:
    chunks = [chunk({"reasoning_content": "Hm."}), chunk({"content": "Four."}), chunk(finish="stop")]
    scripted.enqueue(Reply.stream(chunks))
    with client.responses.stream(model="scripted", input="Hi", reasoning={"summary": "auto"}) as stream:
        output = stream.get_final_response().output
    assert output[0].type == "reasoning"
    assert output[0].summary[0].text == "Hm."
    assert output[0].encrypted_content


def test_errors_are_typed(client: OpenAI, served: RunningGateway, poor_key: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="scripted", input="Hi", previous_response_id="resp_1")
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "previous_response_id")
    with pytest.raises(openai.PermissionDeniedError):
        client.responses.create(model="closed", input="Hi")
    with pytest.raises(openai.NotFoundError) as missing:
        client.responses.retrieve("resp_1")
    assert missing.value.code == "response_not_found"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="sk-nobody").responses.create(model="scripted", input="Hi")
    with pytest.raises(openai.RateLimitError) as poor:
        client.with_options(api_key=poor_key).responses.create(model="scripted", input="Hi")
    assert poor.value.code == "credit_balance_exhausted"


def test_broken_stream_never_completes(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_STREAM)
    events: list[Any] = []
    with (
        client.responses.create(model="scripted", input="Hi", stream=True) as stream,
        pytest.raises(openai.APIConnectionError),
    ):
        for event in stream:
            events.append(event)  # what came before the end is what counts
    assert [event.type for event in events if event.type in ("response.completed", "response.failed")] == [
        "response.failed"
    ]
    assert events[-1].response.error.code == "server_error"


def test_failed_call_is_retried(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(
        *[Reply.error(500, "down", headers={"retry-after": "0"})] * 3, Reply.json(completion({"content": "Four."}))
    )
    with OpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=2) as client:
        assert client.responses.create(model="scripted", input="Hi").output_text == "Four."


def test_input_tokens_are_counted(client: OpenAI) -> None:
    assert client.responses.input_tokens.count(model="scripted", input="Hello, how are you?").input_tokens > 2


def test_upstream_with_the_dialect_answers_in_its_own_words(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(native_response("completed", [REASONING, MESSAGE, CALL], usage=NATIVE_USAGE)))
    answer = client.responses.create(model="native", input="Hi")
    assert (answer.output_text, answer.model) == ("Hello", "native")
    scripted.enqueue(streamed(stream_events()))
    with client.responses.create(model="native", input="Hi", stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == "Hello"
    assert scripted.seen[0].path.endswith("/responses")


async def test_async_client_reads_a_stream_to_its_end(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TEXT_STREAM)
    async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        stream = await client.responses.create(model="scripted", input="Hi", stream=True)
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
    assert "".join(texts) == "Hello"

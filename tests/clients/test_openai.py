"""The official Python SDK, unmodified: the sync client, then the same answers through the async one.

Models named words, record and tide answer from LiteLLM's proxy. `scripted` plays what its mocks cannot: streamed tool
calls, several choices, log probabilities, reasoning text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAI, pydantic_function_tool
from pydantic import BaseModel

from gateway.testing import Reply, RunningGateway

from .independent import ARGUMENTS, RECORD, SENTENCE
from .scripted import TIDE_ANSWER, TIDE_STREAM, ScriptedUpstream, chunk, completion

pytestmark = pytest.mark.clients

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


class Tide(BaseModel):
    """A structured answer."""

    port: str
    metres: int


class TideQuery(BaseModel):
    """Arguments of the tool."""

    port: str


TOOL = pydantic_function_tool(TideQuery, name="tide", description="Height of the tide")


@pytest.fixture(params=["rich", "modest"])
def client(request: pytest.FixtureRequest, served: RunningGateway, modest_key: str) -> Iterator[OpenAI]:
    """A client as the README makes it, of an account with much money and of one whose calls get a lower limit."""
    api_key = modest_key if request.param == "modest" else served.api_key
    with OpenAI(base_url=served.base_url, api_key=api_key, max_retries=0) as client:
        yield client


def test_limit_that_the_balance_lowers_is_sent_and_named(
    served: RunningGateway, modest_key: str, scripted: ScriptedUpstream
) -> None:
    scripted.enqueue(Reply.json(completion({"content": "short"})))
    with OpenAI(base_url=served.base_url, api_key=modest_key, max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(model="scripted", messages=HELLO)
    assert raw.parse().choices[0].message.content == "short"
    limit = int(raw.headers["x-gateway-max-tokens"])
    assert 4096 <= limit < 12_500
    assert scripted.seen[0].json["max_tokens"] == limit


def test_create_answers_with_text_and_usage(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="words", messages=HELLO)
    assert answer.choices[0].message.content == SENTENCE
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "words"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0


def test_raw_response_has_the_request_id_that_the_answer_carries(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="words", messages=HELLO)
    answer = raw.parse()
    assert raw.headers["x-request-id"].startswith("req_")
    assert answer._request_id == raw.headers["x-request-id"] == raw.request_id
    assert raw.headers["content-type"] == "application/json"


def test_stream_has_the_whole_text_under_one_id(client: OpenAI) -> None:
    with client.chat.completions.create(model="words", messages=HELLO, stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SENTENCE
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_comes_last_and_only_if_requested(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="words", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
    )
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_stream_helper_returns_deltas_and_the_final_completion(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="words", messages=HELLO, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("content.delta") > 1
    assert kinds.count("content.done") == 1
    assert final.choices[0].message.content == SENTENCE
    assert final.usage is not None


def test_stream_helper_accumulates_tool_calls(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM)
    with client.chat.completions.stream(model="scripted", messages=HELLO, tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 2
    first, second = final.choices[0].message.tool_calls or []
    assert (first.id, first.function.name, first.function.parsed_arguments) == (
        "call_1",
        "tide",
        TideQuery(port="Brest"),
    )
    assert (second.id, second.function.parsed_arguments) == ("call_2", TideQuery(port="Cork"))
    assert final.choices[0].finish_reason == "tool_calls"


def test_tools_round_trip_from_call_to_answer(client: OpenAI, scripted: ScriptedUpstream) -> None:
    asked = client.chat.completions.create(model="tide", messages=HELLO, tools=[TOOL])
    (call,) = asked.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("tide", ARGUMENTS)
    assert asked.choices[0].finish_reason == "tool_calls"

    scripted.enqueue(Reply.json(completion({"content": "Six metres."})))
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "6"}
    messages: list[Any] = [*HELLO, asked.choices[0].message, result]
    answer = client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL])
    assert answer.choices[0].message.content == "Six metres."
    sent = scripted.seen[0].json
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"] == "call_tide"
    assert sent["tools"] == [TOOL]


def test_structured_output_is_parsed_into_the_callers_class(client: OpenAI) -> None:
    answer = client.chat.completions.parse(model="record", messages=HELLO, response_format=Tide)
    assert answer.choices[0].message.parsed == Tide(port="Brest", metres=6)


def test_structured_output_streams(client: OpenAI) -> None:
    with client.chat.completions.stream(model="record", messages=HELLO, response_format=Tide) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Tide(port="Brest", metres=6)


def test_schema_reaches_the_upstream_unchanged(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": RECORD})))
    answer = client.chat.completions.parse(model="scripted", messages=HELLO, response_format=Tide)
    assert answer.choices[0].message.parsed == Tide(port="Brest", metres=6)
    wanted = scripted.seen[0].json["response_format"]
    assert wanted["json_schema"]["schema"]["required"] == ["port", "metres"]
    assert wanted["json_schema"]["strict"] is True


def test_refusal_is_distinguished_from_an_answer(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(completion({"content": None, "refusal": "I will not."})))
    message = client.chat.completions.parse(model="scripted", messages=HELLO, response_format=Tide).choices[0].message
    assert (message.refusal, message.parsed) == ("I will not.", None)


def test_several_choices_are_returned_whole_and_streamed(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(
        Reply.json(completion({"content": "One"}, {"content": "Two"})),
        Reply.stream(
            [
                chunk({"role": "assistant", "content": "Tw"}, index=1),
                chunk({"role": "assistant", "content": "One"}, index=0),
                chunk({"content": "o"}, index=1),
                chunk(finish="stop", index=1),
                chunk(finish="stop", index=0),
            ]
        ),
    )
    answer = client.chat.completions.create(model="scripted", messages=HELLO, n=2)
    assert [choice.message.content for choice in answer.choices] == ["One", "Two"]
    with client.chat.completions.stream(model="scripted", messages=HELLO, n=2) as stream:
        final = stream.get_final_completion()  # the helper fails when index 1 comes first
    assert [choice.message.content for choice in final.choices] == ["One", "Two"]


def test_log_probabilities_are_returned_whole_and_streamed(client: OpenAI, scripted: ScriptedUpstream) -> None:
    item = {"token": "Four", "logprob": -0.25, "bytes": [70, 111, 117, 114], "top_logprobs": []}
    probabilities = {"content": [item], "refusal": None}
    scripted.enqueue(
        Reply.json(completion({"content": "Four"}, logprobs=probabilities)),
        Reply.stream([chunk({"content": "Four"}, logprobs=probabilities), chunk(finish="stop")]),
    )
    answer = client.chat.completions.create(model="scripted", messages=HELLO, logprobs=True, top_logprobs=0)
    assert answer.choices[0].logprobs is not None
    assert [entry.logprob for entry in answer.choices[0].logprobs.content or []] == [-0.25]
    with client.chat.completions.stream(model="scripted", messages=HELLO, logprobs=True) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].logprobs is not None
    assert [entry.token for entry in final.choices[0].logprobs.content or []] == ["Four"]


def test_reasoning_text_accumulates_separately_from_the_content(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(
        Reply.stream(
            [
                chunk({"role": "assistant", "reasoning": "Two and "}),
                chunk({"reasoning": "two."}),
                chunk({"content": "Four"}),
                chunk(finish="stop"),
            ]
        )
    )
    with client.chat.completions.stream(model="scripted", messages=HELLO) as stream:
        message = stream.get_final_completion().choices[0].message
    assert message.content == "Four"
    assert message.reasoning_content == "Two and two."  # type: ignore[attr-defined]  # an extra of the SDK's model


@pytest.mark.parametrize("stream", [False, True])
def test_legacy_functions_are_answered_by_a_function_call(
    client: OpenAI, scripted: ScriptedUpstream, stream: bool
) -> None:
    scripted.enqueue(TIDE_STREAM if stream else Reply.json(TIDE_ANSWER))
    functions: Any = [{"name": "tide", "parameters": TideQuery.model_json_schema()}]
    answer: Any = client.chat.completions.create(
        model="scripted", messages=HELLO, functions=functions, function_call="auto", stream=stream
    )
    if stream:
        deltas = [chunk.choices[0].delta for chunk in answer]
        calls = [delta.function_call for delta in deltas if delta.function_call]
        assert "".join(call.name or "" for call in calls) == "tide"
        assert json.loads("".join(call.arguments or "" for call in calls)) == {"port": "Brest"}
    else:
        assert answer.choices[0].finish_reason == "function_call"
        assert answer.choices[0].message.function_call.name == "tide"
        assert answer.choices[0].message.tool_calls is None
    assert scripted.seen[0].json["tools"][0]["function"]["name"] == "tide"


def test_parts_of_a_message_reach_the_upstream_unchanged(client: OpenAI, scripted: ScriptedUpstream) -> None:
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]
    scripted.enqueue(Reply.json(completion({"content": "A ship."})))
    messages: Any = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]
    messages.append({"role": "user", "name": "ann", "content": parts})
    assert client.chat.completions.create(model="scripted", messages=messages).choices[0].message.content == "A ship."
    assert scripted.seen[0].json["messages"] == messages


def test_extra_body_and_every_sampling_field_reach_the_upstream(client: OpenAI, scripted: ScriptedUpstream) -> None:
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_completion_tokens": 50,
        "stop": ["END"],
        "presence_penalty": 0.1,
        "frequency_penalty": -0.1,
        "logit_bias": {"50256": -100},
        "seed": 7,
        "user": "ann",
        "metadata": {"case": "x"},
        "reasoning_effort": "low",
    }
    client.chat.completions.create(model="scripted", messages=HELLO, **fields, extra_body={"top_k": 40})
    sent = scripted.seen[0].json
    assert {name: sent.get(name) for name in (*fields, "top_k")} == {**fields, "top_k": 40}


def test_models_are_listed_and_retrieved_with_a_slash_and_a_colon(client: OpenAI) -> None:
    listed = {model.id for model in client.models.list()}
    assert {"words", "scripted", "org/m:1"} <= listed
    assert "closed" not in listed
    model = client.models.retrieve("org/m:1")
    assert (model.id, model.object) == ("org/m:1", "model")
    assert client.chat.completions.create(model="org/m:1", messages=HELLO).choices[0].message.content == SENTENCE


async def test_async_client_creates_streams_and_helps(served: RunningGateway, scripted: ScriptedUpstream) -> None:
    async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key, max_retries=0) as client:
        answer = await client.chat.completions.create(model="words", messages=HELLO)
        assert answer.choices[0].message.content == SENTENCE
        stream = await client.chat.completions.create(model="words", messages=HELLO, stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == SENTENCE
        scripted.enqueue(TIDE_STREAM)
        async with client.chat.completions.stream(model="scripted", messages=HELLO, tools=[TOOL]) as helper:
            final = await helper.get_final_completion()
        assert [call.function.parsed_arguments for call in final.choices[0].message.tool_calls or []] == [
            TideQuery(port="Brest"),
            TideQuery(port="Cork"),
        ]
        parsed = await client.chat.completions.parse(model="record", messages=HELLO, response_format=Tide)
        assert parsed.choices[0].message.parsed == Tide(port="Brest", metres=6)
        assert "words" in {model.id async for model in client.models.list()}


async def test_async_client_reads_stream_after_stream_on_one_connection(served: RunningGateway) -> None:
    """It drains each body after `[DONE]`, so a late end would hang it; the sync client closes the connection itself."""
    addresses: list[Any] = []

    async def note(response: Any) -> None:
        addresses.append(response.extensions["network_stream"].get_extra_info("client_addr"))

    async with AsyncOpenAI(
        base_url=served.base_url,
        api_key=served.api_key,
        timeout=5.0,
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(event_hooks={"response": [note]}),
    ) as client:
        for _ in range(5):
            stream = await client.chat.completions.create(model="words", messages=HELLO, stream=True)
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == SENTENCE
    assert len(addresses) == 5
    assert len(set(addresses)) == 1

"""Anthropic's Python SDK, unmodified, over upstreams of OpenAI's dialect and of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic

from gateway.testing import Reply, RunningGateway
from gateway.testing.openai_dialect import PIXEL

from .scripted import BROKEN_STREAM, TEXT_STREAM, TIDE_ANSWER, TIDE_STREAM, ScriptedUpstream, chunk, completion

pytestmark = pytest.mark.clients

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
TIDE: Any = {
    "name": "tide",
    "description": "Height of the tide",
    "input_schema": {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]},
}
MAX: Any = {"max_tokens": 64}


@pytest.fixture
def tries() -> list[Any]:
    """The requests of this test's client that were answered."""
    return []


@pytest.fixture(params=["bearer", "x-api-key"])
def client(request: pytest.FixtureRequest, dialects: RunningGateway, tries: list[Any]) -> Iterator[Anthropic]:
    """A client with the SDK's own two retries, with each way to send a key."""
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [tries.append]}
    key = {"auth_token": dialects.api_key} if request.param == "bearer" else {"api_key": dialects.api_key}
    address = dialects.base_url.removesuffix("/v1")
    http_client = anthropic.DefaultHttpxClient(event_hooks=hooks)
    with Anthropic(base_url=address, http_client=http_client, **key) as client:  # type: ignore[arg-type]
        yield client


@pytest.mark.parametrize("model", ["translated", "native"])
def test_create_answers_with_text_and_usage(client: Anthropic, scripted: ScriptedUpstream, model: str) -> None:
    answer = client.messages.create(model=model, messages=HELLO, **MAX)
    assert [block.type for block in answer.content] == ["text"]
    assert (answer.model, answer.stop_reason, answer.type) == (model, "end_turn", "message")
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0
    assert answer._request_id is not None
    assert answer._request_id.startswith("req_")


@pytest.mark.parametrize("model", ["translated", "native"])
def test_stream_helper_returns_texts_and_the_final_message(
    client: Anthropic, scripted: ScriptedUpstream, model: str
) -> None:
    scripted.enqueue(TEXT_STREAM)
    with client.messages.stream(model=model, messages=HELLO, **MAX) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    scripted.forget()
    assert text.strip() == "Hello"
    assert final.content[0].type == "text"
    assert (final.content[0].text, final.stop_reason) == (text, "end_turn")
    assert final.usage.output_tokens > 0


def test_tools_round_trip_from_call_to_answer(client: Anthropic, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(Reply.json(TIDE_ANSWER), Reply.json(completion({"content": "Six metres."})))
    asked = client.messages.create(model="translated", messages=HELLO, tools=[TIDE], **MAX)
    (call,) = asked.content
    assert call.type == "tool_use"
    assert (call.id, call.name, call.input) == ("call_1", "tide", {"port": "Brest"})
    assert asked.stop_reason == "tool_use"
    result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "6"}
    turns: list[Any] = [*HELLO, {"role": "assistant", "content": asked.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(model="translated", messages=turns, tools=[TIDE], **MAX)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == "Six metres."
    sent = scripted.seen[-1].json["messages"]
    assert sent[-2]["tool_calls"][0]["id"] == sent[-1]["tool_call_id"] == "call_1"


def test_stream_helper_accumulates_parallel_tool_calls(client: Anthropic, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(TIDE_STREAM)
    with client.messages.stream(model="translated", messages=HELLO, tools=[TIDE], **MAX) as stream:
        final = stream.get_final_message()
    assert [(block.id, block.input) for block in final.content if block.type == "tool_use"] == [
        ("call_1", {"port": "Brest"}),
        ("call_2", {"port": "Cork"}),
    ]
    assert final.stop_reason == "tool_use"


def test_thinking_is_a_block_of_its_own(client: Anthropic, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(
        Reply.stream([chunk({"reasoning_content": "hm"}), chunk({"content": "yes"}), chunk(finish="stop")])
    )
    with client.messages.stream(model="translated", messages=HELLO, thinking={"type": "adaptive"}, **MAX) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]


def test_images_are_shown_to_the_model(client: Anthropic, scripted: ScriptedUpstream) -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    content: Any = [image, {"type": "text", "text": "What is it?"}]
    client.messages.create(model="translated", messages=[{"role": "user", "content": content}], **MAX)
    shown, words = scripted.seen[-1].json["messages"][0]["content"]
    assert shown["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert words["text"] == "What is it?"


def test_tokens_are_counted(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="translated", messages=HELLO, tools=[TIDE])
    assert counted.input_tokens > 20


def test_models_are_listed(client: Anthropic) -> None:
    assert {"native", "translated"} <= {model.id for model in client.models.list()}


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"model": "closed"}, anthropic.PermissionDeniedError, "model_not_permitted"),
        ({"messages": []}, anthropic.BadRequestError, "empty_array"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "integer_below_min_value"),
    ],
)
def test_refusals_are_typed_exceptions(
    client: Anthropic, tries: list[Any], fields: dict[str, Any], kind: type[anthropic.APIStatusError], code: str
) -> None:
    request: dict[str, Any] = {"model": "translated", "messages": HELLO, "max_tokens": 8, **fields}
    with pytest.raises(kind) as caught:
        client.messages.create(**request)
    body: Any = caught.value.body
    assert body["error"]["details"]["error_code"] == code
    assert caught.value.request_id is not None
    assert caught.value.request_id.startswith("req_")
    assert len(tries) == 1


def test_bad_key_is_an_authentication_error(client: Anthropic, tries: list[Any]) -> None:
    stranger = client.with_options(api_key="sk-nobody-knows", auth_token=None)
    with pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(model="translated", messages=HELLO, **MAX)
    assert len(tries) == 1


def test_poor_account_is_told_once(dialects: RunningGateway, dialects_poor_key: str, tries: list[Any]) -> None:
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [tries.append]}
    address = dialects.base_url.removesuffix("/v1")
    http_client = anthropic.DefaultHttpxClient(event_hooks=hooks)
    with (
        Anthropic(base_url=address, api_key=dialects_poor_key, http_client=http_client) as client,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        client.messages.create(model="translated", messages=HELLO, **MAX)
    assert caught.value.status_code == 402
    assert len(tries) == 1


def test_overload_is_retried_and_then_answered(client: Anthropic, scripted: ScriptedUpstream, tries: list[Any]) -> None:
    busy = {"error": {"message": "overloaded", "code": "server_is_overloaded"}}
    scripted.enqueue(Reply.json(busy, status=503))
    answer = client.messages.create(model="translated", messages=HELLO, **MAX)
    assert answer.stop_reason == "end_turn"
    assert [response.status_code for response in tries] == [529, 200]


def test_broken_stream_raises_and_keeps_what_was_said(client: Anthropic, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(BROKEN_STREAM)
    said = ""
    with (
        pytest.raises(anthropic.APIStatusError) as caught,
        client.messages.stream(model="translated", messages=HELLO, **MAX) as stream,
    ):
        for text in stream.text_stream:
            said += text
    assert said == "Hello"
    assert "error" in str(caught.value.body)


def test_async_client_streams(dialects: RunningGateway, scripted: ScriptedUpstream) -> None:
    async def final() -> Any:
        address = dialects.base_url.removesuffix("/v1")
        async with (
            AsyncAnthropic(base_url=address, auth_token=dialects.api_key) as client,
            client.messages.stream(model="native", messages=HELLO, **MAX) as stream,
        ):
            return await stream.get_final_message()

    assert asyncio.run(final()).content[0].text.strip() == "Hello"

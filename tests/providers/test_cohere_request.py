"""What the `cohere` provider sends: each translation, every body judged by the vendor's own models."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest, GatewayError
from gateway_providers.cohere import CohereProvider
from gateway_providers.cohere.embedding import batch_bodies
from gateway_providers.cohere.models import ModelFlags, ModelTraits, traits_of
from gateway_providers.cohere.request import chat_body
from tests import quick
from tests.providers.cohere_dialect import MODEL, THINKING, asking, embedding

TIDE = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
USER = {"role": "user", "content": "hi"}


@cache
def kinds() -> dict[str, Any]:
    """The types of the fields in Cohere's SDK, which takes a second to import; a number is not named."""
    from cohere.types import ChatMessageV2, ResponseFormatV2, Thinking, ToolV2
    from cohere.v2.types import V2ChatRequestSafetyMode, V2ChatRequestToolChoice

    return {
        "model": str,
        "messages": list[ChatMessageV2],
        "tools": list[ToolV2],
        "response_format": ResponseFormatV2,
        "thinking": Thinking,
        "stop_sequences": list[str],
        "stream": bool,
        "strict_tools": bool,
        "logprobs": bool,
        "max_tokens": int,
        "seed": int,
        "k": int,
        "tool_choice": get_args(V2ChatRequestToolChoice)[0],
        "safety_mode": get_args(V2ChatRequestSafetyMode)[0],
    }


def faults(body: dict[str, Any]) -> list[str]:
    """What Cohere's SDK says against a body of ours; empty when nothing."""
    from cohere.v2.client import AsyncV2Client

    from tests.providers.vendor_models import faults as faults_of

    known = {*inspect.signature(AsyncV2Client.chat).parameters, "stream"}
    found = [f"no field {name!r}" for name in body if name not in known]
    return found + [fault for name, value in body.items() for fault in faults_of(value, kinds().get(name, float))]


def sent(model: str = MODEL, *, flags: dict[str, ModelFlags] | None = None, stream: bool = False, **fields: Any) -> Any:
    """The body for these fields, which the SDK must find nothing wrong with, beyond model and messages."""
    body = msgspec.json.decode(chat_body(asking(**fields), model, traits_of(model, flags or {}), stream=stream))
    assert quick.is_on or faults(body) == []
    assert body.pop("model") == model
    return body


def messages_sent(*messages: Any, **fields: Any) -> Any:
    return sent(messages=list(messages), **fields)["messages"]


def refusal(**fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        chat_body(asking(**fields), MODEL, ModelTraits(), stream=False)
    return caught.value


def function(name: str = "tide", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def call(id: str, name: str = "tide", arguments: str = '{"port": "Brest"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.slow
def test_validator_refuses_invalid_values() -> None:
    """Otherwise nothing below would prove anything."""
    good = {"model": "m", "messages": [USER]}
    assert faults(good) == []
    for bad in (
        {"messages": [{"role": "developer", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"messages": [{"role": "user", "content": [{"type": "file"}]}]},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "auto"},
        {"top_p": 0.5},
        {"p": "0.5"},
    ):
        assert faults({**good, **bad}) != []


# Messages ----------------------------------------------------------------------------------------------------------


def test_simple_chat_body_has_only_the_required_fields() -> None:
    assert sent() == {"messages": [USER]}
    assert sent(stream=True) == {"messages": [USER], "stream": True}


def test_roles_keep_their_order_and_developer_becomes_system() -> None:
    given = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]},
        {**USER, "name": "ann"},
        {"role": "assistant", "content": [{"type": "text", "text": "No"}, {"type": "refusal", "refusal": "."}]},
        {"role": "system", "content": "Be frank."},
        USER,
    ]
    assert messages_sent(*given) == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "No."},
        {"role": "system", "content": "Be frank."},
        USER,
    ]


@pytest.mark.parametrize("url", ["https://example.com/cat.png", "data:image/png;base64,iVBORw0KGgo="])
@pytest.mark.parametrize(("detail", "theirs"), [("low", "low"), ("high", "high"), ("auto", "auto"), ("original", None)])
def test_image_urls_are_sent_with_a_supported_detail(url: str, detail: str, theirs: str | None) -> None:
    part = {"type": "image_url", "image_url": {"url": url, "detail": detail}}
    (message,) = messages_sent({"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]})
    image = {"url": url} if theirs is None else {"url": url, "detail": theirs}
    assert message["content"] == [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": image}]


def test_calls_and_results_of_the_history_are_translated() -> None:
    said = {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b", "clock", "")]}
    result = {
        "role": "tool",
        "tool_call_id": "a",
        "content": [{"type": "text", "text": "6:"}, {"type": "text", "text": "40"}],
    }
    turns = messages_sent(USER, {**said, "reasoning_content": "Look first."}, result)
    assert turns[1] == {
        "role": "assistant",
        "content": "I look.",
        "tool_plan": "Look first.",
        "tool_calls": [call("a"), call("b", "clock", "{}")],
    }
    assert turns[2] == {"role": "tool", "tool_call_id": "a", "content": "6:40"}
    assert "content" not in messages_sent(USER, {**said, "content": None}, result)[1]


def test_legacy_function_calls_are_tool_calls() -> None:
    called = {"role": "assistant", "content": None, "function_call": {"name": "tide", "arguments": "{}"}}
    turns = messages_sent(USER, called, {"role": "function", "name": "tide", "content": "6:40"})
    assert turns[1]["tool_calls"][0]["id"] == turns[2]["tool_call_id"]


def test_custom_tools_are_refused_by_their_path() -> None:
    assert refusal(tools=[function(), {"type": "custom", "custom": {"name": "shell"}}]).param == "tools[1].type"
    said = {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "s", "input": "x"}}]}
    assert refusal(messages=[USER, said]).param == "messages[1].tool_calls[0].type"


# Tools -------------------------------------------------------------------------------------------------------------


def test_tools_keep_their_shape() -> None:
    tools = [function(description="High water", parameters=TIDE), function("clock")]
    body = sent(tools=tools)
    assert body["tools"] == [tools[0], function("clock", parameters={"type": "object", "properties": {}})]
    assert "strict_tools" not in body and "tool_choice" not in body
    assert sent(tools=[function(strict=True), function("clock")])["strict_tools"] is True


@pytest.mark.parametrize(("choice", "theirs"), [("auto", None), ("none", "NONE"), ("required", "REQUIRED")])
def test_tool_choice_is_translated(choice: str, theirs: str | None) -> None:
    assert sent(tools=[function()], tool_choice=choice).get("tool_choice") == theirs
    tools = [{"type": "function", "function": {"name": "clock"}}]
    if choice != "none":
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": choice, "tools": tools}}
        body = sent(tools=[function(), function("clock")], tool_choice=allowed)
        assert body.get("tool_choice") == theirs and [tool["function"]["name"] for tool in body["tools"]] == ["clock"]


@pytest.mark.parametrize("legacy", [False, True])
def test_named_tool_choice_is_refused(legacy: bool) -> None:
    fields: dict[str, Any] = {"tools": [function()], "tool_choice": function()}
    if legacy:
        fields = {"functions": [{"name": "tide"}], "function_call": {"name": "tide"}}
    error = refusal(**fields)
    assert (error.status, error.code, error.param) == (400, "unsupported_value", "tool_choice")


def test_tool_choice_is_not_sent_without_tools() -> None:
    assert sent(tools=[], tool_choice="none") == sent()


# Sampling, format, thinking ----------------------------------------------------------------------------------------


def test_sampling_fields_have_cohere_names_and_ranges() -> None:
    fields: dict[str, Any] = {"max_tokens": 50, "temperature": 1.7, "top_p": 0.9, "stop": "END", "seed": 7}
    body = sent(**fields, frequency_penalty=0.5, presence_penalty=0.25, k=40, logprobs=True)
    body.pop("messages")
    assert body == {
        "max_tokens": 50,
        "temperature": 1.7,
        "p": 0.9,
        "stop_sequences": ["END"],
        "seed": 7,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.25,
        "k": 40,
        "logprobs": True,
    }
    body = sent(top_p=1, seed=-1, frequency_penalty=-2, presence_penalty=2, max_completion_tokens=9, stop=["a", "b"])
    assert (body["p"], body["seed"], body["frequency_penalty"], body["presence_penalty"]) == (0.99, 2**64 - 1, 0, 1)
    assert body["max_tokens"] == 9 and body["stop_sequences"] == ["a", "b"] and sent(top_p=0)["p"] == 0.01


@pytest.mark.parametrize(
    ("k", "code"),
    [("5", "invalid_type"), (1.5, "invalid_type"), (-1, "integer_below_min_value"), (501, "integer_above_max_value")],
)
def test_invalid_k_is_refused(k: Any, code: str) -> None:
    error = refusal(k=k)
    assert (error.param, error.code) == ("k", code)
    assert "k" not in sent(k=None)


def test_response_format_is_translated() -> None:
    assert sent(response_format={"type": "json_object"})["response_format"] == {"type": "json_object"}
    wanted = {"type": "json_schema", "json_schema": {"name": "tide", "schema": TIDE}}
    assert sent(response_format=wanted)["response_format"] == {"type": "json_object", "json_schema": TIDE}
    assert sent(response_format={"type": "text"}) == sent()


@pytest.mark.parametrize(
    ("effort", "budget"), [("minimal", 1024), ("low", 1024), ("medium", 4096), ("high", 16384), ("max", 32000)]
)
def test_effort_is_a_token_budget_for_reasoning_models(effort: str, budget: int) -> None:
    body = sent(THINKING, reasoning_effort=effort)
    assert body["thinking"] == {"type": "enabled", "token_budget": budget}
    assert sent(MODEL, reasoning_effort=effort) == sent()
    assert sent(MODEL, flags={"command-*": ModelFlags(thinking=True)}, reasoning_effort=effort) == body


def test_effort_none_or_a_small_limit_turns_thinking_off() -> None:
    assert sent(THINKING, reasoning_effort="none")["thinking"] == {"type": "disabled"}
    assert sent(THINKING, reasoning_effort="high", max_tokens=100)["thinking"] == {"type": "disabled"}
    body = sent(THINKING, reasoning_effort="high", max_tokens=8000)
    assert body["max_tokens"] == 8000 and 1024 <= body["thinking"]["token_budget"] < 8000


def test_operators_flags_take_precedence() -> None:
    flags = {
        "command-a-*": ModelFlags(safety_mode="STRICT"),
        "*": ModelFlags(safety_mode="OFF", thinking=False, input_type="clustering"),
    }
    assert sent(THINKING, flags=flags, reasoning_effort="low") == {**sent(), "safety_mode": "STRICT"}
    assert traits_of("embed-v4.0", flags) == ModelTraits(safety_mode="OFF", input_type="clustering")
    assert traits_of("embed-v4.0", {}) == ModelTraits()


def test_fields_unknown_to_cohere_are_not_supported() -> None:
    honoured = CohereProvider.chat_fields or frozenset()
    refused = {"n", "top_logprobs", "logit_bias", "modalities", "audio", "web_search_options", "moderation"}
    assert not {*refused, "input_audio", "file", "user", "store", "metadata", "service_tier"} & honoured
    assert asking(n=2, logprobs=True, top_logprobs=3).demands() - honoured == {"n", "top_logprobs"}
    assert asking(logprobs=True, top_logprobs=0).demands() <= honoured


contents = st.text(max_size=20)
turns = st.lists(
    st.one_of(
        st.builds(lambda c: {"role": "user", "content": c}, contents),
        st.builds(lambda c: {"role": "user", "content": [{"type": "text", "text": c}]}, contents),
        st.builds(lambda c: {"role": "assistant", "content": c}, contents),
        st.builds(lambda c: {"role": "system", "content": c}, contents),
        st.builds(lambda a: {"role": "assistant", "content": None, "tool_calls": [call("a", arguments=a)]}, contents),
        st.builds(lambda c: {"role": "tool", "tool_call_id": "a", "content": c}, contents),
    ),
    min_size=1,
    max_size=6,
)


@given(turns)
def test_every_body_is_a_valid_request_or_a_400(messages: list[Any]) -> None:
    try:
        said = [message["role"] for message in messages_sent(*messages)]
        asked = [message["role"] for message in messages]
        # A second result of a call becomes part of its first.
        assert [role for role in said if role != "tool"] == [role for role in asked if role != "tool"]
        assert min(said.count("tool"), 1) == min(asked.count("tool"), 1)
    except GatewayError as error:
        assert isinstance(error, BadRequest)


# Embeddings --------------------------------------------------------------------------------------------------------


def batches(input: Any, traits: ModelTraits = ModelTraits(), **fields: Any) -> list[Any]:  # noqa: B008 - frozen
    bodies = [msgspec.json.decode(body) for body in batch_bodies(embedding(input, **fields), "embed-v4.0", traits)]
    assert quick.is_on or {name for body in bodies for name in body} <= known_for_embeddings()
    return bodies


def known_for_embeddings() -> set[str]:
    """The fields that Cohere's SDK sends."""
    from cohere.v2.client import AsyncV2Client

    return set(inspect.signature(AsyncV2Client.embed).parameters)


def test_texts_are_embedded_as_documents_by_default() -> None:
    assert batches("hello") == [
        {
            "model": "embed-v4.0",
            "texts": ["hello"],
            "input_type": "search_document",
            "embedding_types": ["float"],
            "truncate": "NONE",
        }
    ]
    assert batches("x", ModelTraits(input_type="clustering"))[0]["input_type"] == "clustering"
    assert (
        batches("x", ModelTraits(input_type="clustering"), input_type="search_query")[0]["input_type"] == "search_query"
    )
    assert batches("x", input_type=None)[0]["input_type"] == "search_document"
    assert batches("x", dimensions=256)[0]["output_dimension"] == 256


@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (96, [96]), (97, [96, 1]), (2048, [96] * 21 + [32])])
def test_texts_are_sent_96_at_a_time_and_in_order(count: int, sizes: list[int]) -> None:
    texts = [f"text {number}" for number in range(count)]
    bodies = batches(texts)
    assert [len(body["texts"]) for body in bodies] == sizes
    assert [text for body in bodies for text in body["texts"]] == texts


@pytest.mark.parametrize("input_type", ["image", "query", 7, [], {}, ""])
def test_unknown_input_type_is_refused(input_type: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        batches("x", input_type=input_type)
    assert (caught.value.param, caught.value.code) == ("input_type", "invalid_value")


@pytest.mark.parametrize("input", [[1, 2], [[1], [2]]])
def test_token_numbers_are_refused(input: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        batches(input)
    assert (caught.value.param, caught.value.code) == ("input", "unsupported_value")
    assert not CohereProvider.takes_tokens

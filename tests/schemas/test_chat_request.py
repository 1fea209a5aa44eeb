"""What a valid chat body becomes: typed attributes for translators, raw fields for forwarding, nothing forbidden."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw

from gateway.errors import BadRequest, InvalidJSON, UnknownParameter
from gateway.schemas.chat_messages import (
    AssistantMessage,
    CustomTool,
    DeveloperMessage,
    FunctionChoice,
    FunctionMessage,
    FunctionTool,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.duplicate_keys import Examined, own_request
from gateway.schemas.forbidden import FORBIDDEN_FIELDS, header_name, strip_forbidden
from gateway.schemas.request_fields import OWN

HI = {"role": "user", "content": "hi"}
CUSTOM_CALL = {"id": "c2", "type": "custom", "custom": {"name": "x", "input": ""}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def decode(**fields: Any) -> ChatRequest:
    return decode_chat_request(json.dumps({"model": "m", "messages": [HI], **fields}).encode())


def forwarded(request: ChatRequest) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in request.fields.items()}


def test_every_role_becomes_its_own_type():
    request = decode(
        messages=[
            {"role": "system", "content": "a"},
            {"role": "developer", "content": [{"type": "text", "text": "b"}]},
            {"role": "user", "content": "c", "name": "n"},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "unknown": 1},
            {"role": "tool", "tool_call_id": "c1", "content": "d"},
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": None},
        ]
    )
    kinds = [SystemMessage, DeveloperMessage, UserMessage, AssistantMessage, ToolMessage, AssistantMessage]
    assert [type(message) for message in request.messages] == [*kinds, FunctionMessage]
    assert request.messages[1].content == [TextPart(text="b")]


@pytest.mark.parametrize("message", [
    {"role": "assistant", "content": "text"}, {"role": "assistant", "content": ""},
    {"role": "assistant", "content": None, "refusal": "no"}, {"role": "assistant", "audio": {"id": "a"}},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "assistant", "content": None, "tool_calls": [CUSTOM_CALL]},
])  # fmt: skip
def test_an_answer_may_be_sent_back_unchanged(message):
    assert isinstance(decode(messages=[HI, message]).messages[1], AssistantMessage)


def test_extra_assistant_keys_are_kept_for_dialects_that_use_them():
    extras = {
        "reasoning_content": "r",
        "reasoning": "s",
        "reasoning_details": [{"x": 1}],
        "thinking_blocks": [{"y": 2}],
    }
    message = decode(
        messages=[{"role": "assistant", "tool_calls": [{**CALL, "extra_content": {"g": 1}}], **extras}]
    ).messages[0]
    assert isinstance(message, AssistantMessage)
    assert (message.reasoning_content, message.reasoning) == ("r", "s")
    assert msgspec.json.decode(cast("Any", message.reasoning_details)) == [{"x": 1}]
    assert msgspec.json.decode(cast("Any", message.thinking_blocks)) == [{"y": 2}]
    assert message.tool_calls
    assert msgspec.json.decode(cast("Any", message.tool_calls[0].extra_content)) == {"g": 1}


@pytest.mark.parametrize(
    "url", ["https://x/y.png", "HTTPS://x/y", "data:image/png;base64,AA==", "data:image/svg+xml;base64,A"]
)
def test_image_urls_are_https_or_data_urls(url):
    request = decode(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert isinstance(cast("Any", request.messages[0].content)[0], ImagePart)
    assert request.demands() == {"image_url"}


def test_null_equals_absence_in_every_optional_field():
    optional = [name for name in ChatRequest.field_classes if name not in {"model", "messages"}]
    request = decode(**dict.fromkeys(optional))
    assert all(getattr(request, name) is None for name in optional)
    assert request.present_fields() == {"model", "messages"}
    assert request.demands() == frozenset()


def test_every_field_has_a_class_and_an_attribute():
    assert set(ChatRequest.field_classes) == set(ChatRequest.__struct_fields__) - OWN


def test_fields_are_forwarded_exactly_as_sent():
    body = (
        b'{"model":"m", "messages":[{"role":"user","content":"\\u00e9", "x": 1.0}],'
        b'\n"temperature": 1.10, "odd":  [1e2 ] }'
    )
    request = decode_chat_request(body)
    assert {name: bytes(raw) for name, raw in request.fields.items()} == {
        "model": b'"m"',
        "messages": b'[{"role":"user","content":"\\u00e9", "x": 1.0}]',
        "temperature": b"1.10",
        "odd": b"[1e2 ]",
    }
    assert request.extra == ("odd",)


def test_duplicate_fields_are_refused():
    with pytest.raises(InvalidJSON):
        decode_chat_request(b'{"model":"a","messages":[{"role":"user","content":""}],"model":"b"}')


@pytest.mark.parametrize("name", ["fields", "extra", "dropped"])
@pytest.mark.parametrize("value", [5, None, ["x"], {"model": "other"}])
def test_internal_attributes_never_come_from_the_request(name, value):
    request = decode(**{name: value})
    sent = () if value is None else (name,)  # null is absence
    assert request.fields.keys() == {"model", "messages", *sent}
    assert request.extra == sent
    assert request.dropped == ()


def test_helpers_read_either_field_name():
    assert decode().max_output is None
    assert decode(max_tokens=5).max_output == 5
    assert decode(max_completion_tokens=6).max_output == 6
    assert decode(max_tokens=7, max_completion_tokens=7).max_output == 7
    assert decode().choices == 1
    assert decode(n=3).choices == 3
    assert not decode(stream=True).wants_usage
    assert not decode(stream=True, stream_options={"include_usage": False}).wants_usage
    assert decode(stream=True, stream_options={"include_usage": True}).wants_usage
    assert decode(stream=True, stream_options={}).wants_obfuscation
    assert not decode(stream=True, stream_options={"include_obfuscation": False}).wants_obfuscation


def test_semantic_fields_require_support_only_with_values_other_than_the_default():
    mild = decode(
        n=1, logprobs=False, response_format={"type": "text"}, modalities=["text"], tool_choice="auto", temperature=1
    )
    assert mild.demands() == frozenset()
    tools = [{"type": "function", "function": {"name": "f"}}]
    strong = decode(n=2, logprobs=True, response_format={"type": "json_object"}, tools=tools, tool_choice="required")
    assert strong.demands() == {"n", "logprobs", "response_format", "tools", "tool_choice"}


def test_tool_forms_are_typed():
    parameters = {"type": "object", "properties": {"headers": {"type": "string"}}}
    request = decode(
        tools=[
            {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": None}},
            {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}},
            {"type": "function", "function": {"name": "g", "parameters": None}},
        ],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
    )
    assert [type(tool) for tool in request.as_tools] == [FunctionTool, CustomTool, FunctionTool]
    assert msgspec.json.decode(cast("Any", request.as_tools[0].function.parameters)) == parameters
    assert request.as_tools[2].function.parameters is msgspec.UNSET
    assert not request.legacy_functions
    assert forwarded(request)["tools"][0]["function"]["parameters"] == parameters


def test_legacy_functions_are_rewritten_as_tools():
    request = decode(functions=[{"name": "f", "parameters": {}, "x": 1}, {"name": "g"}], function_call={"name": "g"})
    assert request.legacy_functions
    assert [tool.function.name for tool in request.as_tools] == ["f", "g"]
    assert isinstance(request.as_tool_choice, FunctionChoice)
    assert forwarded(request) == {
        "model": "m",
        "messages": [HI],
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": {}, "x": 1}},
            {"type": "function", "function": {"name": "g"}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "g"}},
    }
    assert forwarded(decode(functions=[{"name": "f"}], function_call="none"))["tool_choice"] == "none"


@pytest.mark.parametrize("name", sorted(FORBIDDEN_FIELDS))
def test_no_address_or_credential_is_forwarded_at_any_depth(name):
    spelled = name.upper().replace("_", "-")
    request = decode(
        **{name: "evil", spelled: "evil", "provider": {"order": ["a"], "list": [{"b": 1, spelled: "evil"}]}}
    )
    assert forwarded(request) == {
        "model": "m",
        "messages": [HI],
        "provider": {"order": ["a"], "list": [{"b": 1}]},
    }
    assert request.extra == ("provider",)
    assert request.dropped == (name, spelled, f"provider.{spelled}")


def test_forbidden_names_in_known_objects_are_removed_too():
    request = decode(moderation={"model": "m", "api_base": "http://evil", "policy": {"headers": {}}})
    assert forwarded(request)["moderation"] == {"model": "m", "policy": {}}
    assert set(request.dropped) == {"moderation.api_base", "moderation.headers"}
    escaped = decode_chat_request(b'{"model":"m","messages":[{"role":"user","content":""}],"a":{"api\\u005fbase":1}}')
    assert forwarded(escaped)["a"] == {}


def test_dropped_names_are_valid_in_a_response_header():
    request = decode(**{"x\r\nSet-Cookie: a": {"api_key": 1}})
    assert request.dropped == ("x??Set-Cookie??a.api_key",)
    assert len(header_name("n" * 1000)) == 64


def test_reject_mode_names_the_unknown_field():
    with pytest.raises(UnknownParameter) as caught:
        decode(odd=1).refuse_unknown()
    assert (caught.value.code, caught.value.param) == ("unknown_parameter", "odd")
    with pytest.raises(UnknownParameter):
        decode(api_base="http://evil").refuse_unknown()
    decode(user="u").refuse_unknown()


def test_a_number_out_of_range_in_an_unknown_object_is_refused():
    with pytest.raises(BadRequest) as caught:
        decode_chat_request(b'{"model":"m","messages":[{"role":"user","content":""}],"x":{"y":1e999}}')
    assert (caught.value.code, caught.value.param) == ("invalid_value", "x")


def test_an_object_too_deep_to_search_is_refused():
    deep = Raw(b'{"a":' * 20_000 + b"1" + b"}" * 20_000)
    with pytest.raises(InvalidJSON):
        strip_forbidden({"x": deep}, ["x"])


def test_a_large_image_is_accepted():
    url = "data:image/png;base64," + "A" * 4_000_000
    request = decode(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
    assert cast("Any", request.messages[0].content)[0].image_url.url == url


# Requests that the gateway writes itself ---------------------------------------------------------------------------


def _own(*functions: dict[str, object]) -> Examined:
    tools = [{"type": "function", "function": function} for function in functions]
    return own_request({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools})


@pytest.mark.parametrize("parameters", [Raw(b'{"type":"object"}'), {"type": "object"}], ids=["text", "not written yet"])
def test_tools_of_an_own_request_are_those_of_the_same_request_as_json(parameters: object) -> None:
    own = _own({"name": "f", "description": "d", "parameters": parameters, "strict": True}, {"name": "g"})
    assert own.fields is not None
    request, decoded = decode_chat_request(own), decode_chat_request(msgspec.json.encode(own.fields))
    assert msgspec.json.encode(request.tools) == msgspec.json.encode(decoded.tools)
    assert bytes(request.fields["tools"]) == bytes(decoded.fields["tools"])


@pytest.mark.parametrize(
    ("functions", "param"),
    [
        ([{"name": ""}], "tools[0].function.name"),
        ([{"name": "f"}, {"name": "g", "parameters": Raw(b"[]")}], "tools[1].function.parameters"),
        ([{"name": f"f{number}"} for number in range(129)], "tools"),
    ],
)
def test_invalid_tools_of_an_own_request_are_refused_with_their_path(
    functions: list[dict[str, object]], param: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        decode_chat_request(_own(*functions))
    assert refused.value.param == param

"""Requests of Google's API: param and code of each error, and the chat request that a valid one amounts to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.errors import BadRequest
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.gemini_embeddings import decode_embed_content
from gateway.schemas.gemini_request import decode_gemini, wants_thoughts

HI = {"role": "user", "parts": [{"text": "Hi"}]}
CALL = {"functionCall": {"name": "f", "args": {"host": "x"}}}
RESULT = {"functionResponse": {"name": "f", "response": {"output": "ok"}}}
F = {"functionDeclarations": [{"name": "f"}]}


def read(**fields: Any) -> ChatRequest:
    return decode_gemini(msgspec.json.encode({"contents": [HI], **fields}), "m", stream=False)


def sent(request: ChatRequest) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in request.fields.items()}


@pytest.mark.holds("fields.md#gemini-1")
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"contents": None}, "contents", "invalid_type"),
        ({"contents": []}, "contents", "empty_array"),
        ({"contents": "Hi"}, "contents", "invalid_type"),
        ({"contents": [{"role": "assistant", "parts": []}]}, "contents[0].role", "invalid_value"),
        ({"contents": [{"parts": [{}]}]}, "contents[0].parts[0]", "missing_required_parameter"),
        ({"contents": [{"parts": []}]}, "contents", "missing_required_parameter"),
        ({"contents": [{"parts": [{"text": 1}]}]}, "contents[0].parts[0].text", "invalid_type"),
        ({"contents": [{"parts": [{"text": "a", **CALL}]}]}, "contents[0].parts[0]", "invalid_value"),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png"}}]}]},
            "contents[0].parts[0].inlineData.data",
            "missing_required_parameter",
        ),
        (
            {"contents": [{"parts": [{"fileData": {"fileUri": "http://a/b"}}]}]},
            "contents[0].parts[0].fileData.fileUri",
            "invalid_value",
        ),
        (
            {"contents": [HI, {"parts": [RESULT]}]},
            "contents[1].parts[0].functionResponse.name",
            "invalid_value",
        ),
        (
            {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "a b"}}]}]},
            "contents[0].parts[0].functionCall.name",
            "invalid_value",
        ),
        (
            {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "f", "args": []}}]}]},
            "contents[0].parts[0].functionCall.args",
            "invalid_type",
        ),
        ({"cachedContent": "cachedContents/1"}, "cachedContent", "unsupported_parameter"),
        (
            {"tools": [{"functionDeclarations": [{}]}]},
            "tools[0].functionDeclarations[0].name",
            "missing_required_parameter",
        ),
        ({"tools": [F, F]}, "tools[1].functionDeclarations[0].name", "invalid_value"),
        (
            {"tools": [{"functionDeclarations": [{"name": "f", "parameters": []}]}]},
            "tools[0].functionDeclarations[0].parameters",
            "invalid_type",
        ),
        (
            {"tools": [{"googleSearch": {}}], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
            "toolConfig.functionCallingConfig.mode",
            "invalid_value",
        ),
        (
            {"tools": [F], "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["g"]}}},
            "toolConfig.functionCallingConfig.allowedFunctionNames[0]",
            "invalid_value",
        ),
        ({"generationConfig": {"temperature": 2.5}}, "generationConfig.temperature", "decimal_above_max_value"),
        ({"generation_config": {"top_p": -1}}, "generationConfig.topP", "decimal_below_min_value"),
        ({"generationConfig": {"maxOutputTokens": 0}}, "generationConfig.maxOutputTokens", "integer_below_min_value"),
        ({"generationConfig": {"candidateCount": 9}}, "generationConfig.candidateCount", "integer_above_max_value"),
        ({"generationConfig": {"responseSchema": {}}}, "generationConfig.responseMimeType", "invalid_value"),
    ],
)
def test_error_names_the_field_and_its_code(fields: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**fields)
    assert (refused.value.param, refused.value.code) == (param, code)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"contents":1,"contents":2}', b"[" * 5000])
def test_body_that_is_no_object_is_invalid_json(body: bytes) -> None:
    with pytest.raises(BadRequest) as refused:
        decode_gemini(body, "m")
    assert refused.value.code == "invalid_json"


def test_calls_without_ids_meet_their_results_and_equal_histories_give_equal_ids() -> None:
    history = [
        HI,
        {"role": "model", "parts": [CALL, {"functionCall": {"name": "g"}}, CALL]},
        {"role": "user", "parts": [RESULT, {"text": "and"}, {"functionResponse": {"name": "g"}}, RESULT]},
    ]
    first, again = sent(read(contents=history)), sent(read(contents=[*history, HI]))
    calls = first["messages"][1]["tool_calls"]
    assert [call["id"] for call in calls] == ["call_0", "call_1", "call_2"]
    results = [(one["tool_call_id"], one["content"]) for one in first["messages"] if one["role"] == "tool"]
    assert results == [("call_0", "ok"), ("call_1", "{}"), ("call_2", "ok")]
    assert first["messages"][-1] == {"role": "user", "content": "and"}
    assert again["messages"][:-1] == first["messages"]


def test_snake_case_is_the_same_request_and_words_of_the_caller_stay() -> None:
    part = {"function_call": {"name": "f", "args": {"mime_type": 1, "host": "x"}}, "thought_signature": "a+/="}
    snake = read(
        contents=[{"role": "model", "parts": [part]}],
        system_instruction={"parts": {"text": "Be"}},
        tools=[
            {"function_declarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {"top_k": {}}}}]}
        ],
        generation_config={"max_output_tokens": 5, "thinking_config": {"include_thoughts": True}},
    )
    told = sent(snake)
    assert told["messages"][0] == {"role": "system", "content": "Be"}
    [call] = told["messages"][1]["tool_calls"]
    assert msgspec.json.decode(call["function"]["arguments"]) == {"mime_type": 1, "host": "x"}
    assert call["extra_content"] == {"google": {"thought_signature": "a+/="}}
    assert told["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {"top_k": {}}}
    assert told["max_tokens"] == 5 and wants_thoughts(snake)
    assert snake.native is not None and {"systemInstruction", "tools"} <= snake.native.fields.keys()


def test_googles_schema_becomes_a_json_schema() -> None:
    google = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "enum": ["A"]},
            "list": {"type": "ARRAY", "items": {"type": "INTEGER"}, "minItems": "1"},
            "either": {"anyOf": [{"type": "NUMBER"}, {"type": "BOOLEAN"}]},
        },
        "propertyOrdering": ["type"],
        "required": ["type"],
    }
    request = read(tools=[{"functionDeclarations": [{"name": "f", "parameters": google}]}])
    assert sent(request)["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["A"]},
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "either": {"anyOf": [{"type": "number"}, {"type": "boolean"}]},
        },
        "required": ["type"],
    }


@pytest.mark.holds("fields.md#generation-1")
@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": 512}, "minimal"),
        ({"thinkingBudget": 1024}, "low"),
        ({"thinkingBudget": 8192}, "medium"),
        ({"thinkingBudget": 24_576}, "high"),
        ({"thinkingBudget": 24_577}, "xhigh"),
        ({"thinkingBudget": -1}, None),
        ({"thinkingLevel": "HIGH"}, "high"),
        ({"thinkingLevel": "low", "thinkingBudget": 9000}, "low"),
        ({"includeThoughts": True}, None),
    ],
)
def test_thinking_is_an_effort(thinking: dict[str, Any], effort: str | None) -> None:
    assert read(generationConfig={"thinkingConfig": thinking}).reasoning_effort == effort


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"generationConfig": {"responseModalities": ["TEXT", "IMAGE"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"responseMimeType": "text/x.enum"}}, "generationConfig.responseMimeType"),
        (
            {"contents": [{"parts": [{"fileData": {"fileUri": "gs://a/b.pdf", "mimeType": "application/pdf"}}]}]},
            "contents[0].parts[0].fileData",
        ),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "https://a/b", "mimeType": "image/png"}}]}]}, ""),
    ],
)
def test_demand_that_only_google_can_meet_is_named(fields: dict[str, Any], path: str) -> None:
    native = read(**fields).native
    assert native is not None and native.only_native == path


def test_names_that_no_upstream_may_see_are_removed_except_from_the_callers_words() -> None:
    part = {"functionCall": {"name": "f", "args": {"api_key": 1}}, "api_base": "x", "newest": {"apiKey": 2, "a": 1.50}}
    request = read(contents=[{"role": "model", "parts": [part]}], api_base="evil", generationConfig={"proxy": "evil"})
    assert request.native is not None
    assert msgspec.json.decode(request.native.fields["contents"]) == [
        {"role": "model", "parts": [{"functionCall": part["functionCall"], "newest": {"a": 1.5}}]}
    ]
    assert "evil" not in str({name: bytes(raw) for name, raw in request.native.fields.items()})
    assert {"api_base", "newest.apiKey"} <= set(request.dropped)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "content"),
        ({"content": {"parts": [{"inlineData": {"mimeType": "a", "data": "b"}}]}}, "content.parts[0]"),
        ({"content": {"parts": [{"text": ""}]}}, "content.parts"),
        ({"content": {"parts": [{"text": "a"}]}, "output_dimensionality": 0}, "outputDimensionality"),
    ],
)
def test_error_of_an_embedding_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        decode_embed_content(msgspec.json.encode(fields), "m", batch=False)
    assert refused.value.param == param


def test_batch_has_one_text_for_each_request() -> None:
    requests = [{"content": {"parts": [{"text": text}]}, "taskType": "RETRIEVAL_QUERY"} for text in ("a", "b")]
    request = decode_embed_content(msgspec.json.encode({"requests": requests}), "m", batch=True)
    assert (request.input, request.dropped) == (["a", "b"], ("taskType",))

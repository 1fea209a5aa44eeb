"""Every refusal of a chat body: what is wrong, the wire's code, and the exact param."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import BadRequest
from gateway.schemas.chat_request import decode_chat_request

HI = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}


def refusal(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        decode_chat_request(body)
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    return caught.value


def user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def messages(*items: Any) -> dict[str, Any]:
    return {"messages": list(items)}


def image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def schema(**fields: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": fields}}


MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"

# Fields laid over a good request, code, param.
ROWS: list[tuple[dict[str, Any], str, str]] = [
    # model
    ({"model": 5}, TYPE, "model"),
    ({"model": None}, TYPE, "model"),
    ({"model": ""}, "empty_string", "model"),
    ({"model": "m" * 257}, "string_above_max_length", "model"),
    # messages
    ({"messages": "hi"}, TYPE, "messages"),
    ({"messages": {}}, TYPE, "messages"),
    ({"messages": []}, "empty_array", "messages"),
    (messages(HI, "hi"), TYPE, "messages[1]"),
    (messages({}), MISSING, "messages[0].role"),
    (messages(HI, {"role": 1}), TYPE, "messages[1].role"),
    (messages({"role": None}), TYPE, "messages[0].role"),
    (messages({"role": "robot", "content": ""}), VALUE, "messages[0].role"),
    (messages({"role": "user"}), MISSING, "messages[0].content"),
    (messages({"role": "user", "content": None}), TYPE, "messages[0].content"),
    (messages({"role": "user", "content": 1}), TYPE, "messages[0].content"),
    (messages({"role": "user", "content": []}), "empty_array", "messages[0].content"),
    (messages({"role": "user", "content": "", "name": 1}), TYPE, "messages[0].name"),
    (messages({"role": "system"}), MISSING, "messages[0].content"),
    (messages({"role": "system", "content": [image("https://x/y")]}), VALUE, "messages[0].content[0].type"),
    (messages({"role": "developer", "content": []}), "empty_array", "messages[0].content"),
    # assistant and tool messages
    (messages({"role": "assistant"}), MISSING, "messages[0].content"),
    (messages({"role": "assistant", "content": None}), MISSING, "messages[0].content"),
    (messages({"role": "assistant", "content": None, "tool_calls": []}), MISSING, "messages[0].content"),
    (messages({"role": "assistant", "content": [image("https://x/y")]}), VALUE, "messages[0].content[0].type"),
    (messages({"role": "assistant", "tool_calls": CALL}), TYPE, "messages[0].tool_calls"),
    (messages({"role": "assistant", "tool_calls": [{}]}), MISSING, "messages[0].tool_calls[0].type"),
    (messages({"role": "assistant", "tool_calls": [{**CALL, "type": "x"}]}), VALUE, "messages[0].tool_calls[0].type"),
    (messages({"role": "assistant", "tool_calls": [{**CALL, "id": 1}]}), TYPE, "messages[0].tool_calls[0].id"),
    (
        messages({"role": "assistant", "tool_calls": [CALL, {**CALL, "function": {"name": "f"}}]}),
        MISSING,
        "messages[0].tool_calls[1].function.arguments",
    ),
    (messages({"role": "assistant", "function_call": {"name": "f"}}), MISSING, "messages[0].function_call.arguments"),
    (messages({"role": "assistant", "content": "", "reasoning_content": 1}), TYPE, "messages[0].reasoning_content"),
    (messages({"role": "assistant", "audio": {}}), MISSING, "messages[0].audio.id"),
    (messages({"role": "tool", "content": ""}), MISSING, "messages[0].tool_call_id"),
    (messages({"role": "tool", "tool_call_id": "c1"}), MISSING, "messages[0].content"),
    (messages(HI, {"role": "tool", "content": "", "tool_call_id": "c1"}), VALUE, "messages[1].tool_call_id"),
    (
        messages({"role": "tool", "content": "", "tool_call_id": "c1"}, {"role": "assistant", "tool_calls": [CALL]}),
        VALUE,
        "messages[0].tool_call_id",
    ),
    (messages({"role": "function", "content": ""}), MISSING, "messages[0].name"),
    (messages({"role": "function", "name": "f"}), MISSING, "messages[0].content"),
    # parts
    (user("text"), TYPE, "messages[0].content[0]"),
    (user({"text": ""}), MISSING, "messages[0].content[0].type"),
    (user({"type": "video"}), VALUE, "messages[0].content[0].type"),
    (user({"type": "text", "text": "a"}, {"type": "text"}), MISSING, "messages[0].content[1].text"),
    (user({"type": "image_url"}), MISSING, "messages[0].content[0].image_url"),
    (user({"type": "image_url", "image_url": "https://x/y"}), TYPE, "messages[0].content[0].image_url"),
    (user(image(5)), TYPE, "messages[0].content[0].image_url.url"),
    (user(image("https://x/y", detail="fine")), VALUE, "messages[0].content[0].image_url.detail"),
    *(
        (user({"type": "text", "text": ""}, image(url)), VALUE, "messages[0].content[1].image_url.url")
        for url in (
            "",
            "https://",
            "http://x/y.png",
            "file:///etc/passwd",
            "data:text/plain;base64,AA==",
            "data:image/png,AA",
            "//x/y",
            "gopher://x",
        )
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "AA"}}),
        MISSING,
        "messages[0].content[0].input_audio.format",
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}),
        "empty_string",
        "messages[0].content[0].input_audio.data",
    ),
    (
        user({"type": "input_audio", "input_audio": {"data": "A", "format": "ogg"}}),
        VALUE,
        "messages[0].content[0].input_audio.format",
    ),
    (
        user({"type": "file", "file": {"file_id": "file-1"}}),
        "unsupported_parameter",
        "messages[0].content[0].file.file_id",
    ),
    (user({"type": "file", "file": {"filename": "a"}}), MISSING, "messages[0].content[0].file.file_data"),
    (user({"type": "file", "file": {"file_data": "AAAA"}}), VALUE, "messages[0].content[0].file.file_data"),
    (user({"type": "text", "text": "", "prompt_cache_breakpoint": {"mode": "x"}}), VALUE,
     "messages[0].content[0].prompt_cache_breakpoint.mode"),
    # numbers
    ({"temperature": 2.1}, "decimal_above_max_value", "temperature"),
    ({"temperature": 3}, "decimal_above_max_value", "temperature"),
    ({"temperature": -0.1}, "decimal_below_min_value", "temperature"),
    ({"temperature": "1"}, TYPE, "temperature"),
    ({"temperature": True}, TYPE, "temperature"),
    ({"temperature": 10**400}, "decimal_above_max_value", "temperature"),
    ({"top_p": 1.01}, "decimal_above_max_value", "top_p"),
    ({"top_p": -1}, "decimal_below_min_value", "top_p"),
    ({"presence_penalty": 2.5}, "decimal_above_max_value", "presence_penalty"),
    ({"frequency_penalty": -2.5}, "decimal_below_min_value", "frequency_penalty"),
    ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    ({"max_tokens": -5}, "integer_below_min_value", "max_tokens"),
    ({"max_tokens": 1.5}, TYPE, "max_tokens"),
    ({"max_tokens": 16.0}, TYPE, "max_tokens"),
    ({"max_tokens": True}, TYPE, "max_tokens"),
    ({"max_tokens": "16"}, TYPE, "max_tokens"),
    ({"max_tokens": 10**400}, "integer_above_max_value", "max_tokens"),
    ({"max_completion_tokens": 0}, "integer_below_min_value", "max_completion_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, VALUE, "max_tokens"),
    ({"n": 0}, "integer_below_min_value", "n"),
    ({"n": 129}, "integer_above_max_value", "n"),
    ({"n": False}, TYPE, "n"),
    ({"seed": 2**63}, "integer_above_max_value", "seed"),
    ({"seed": -(2**63) - 1}, "integer_below_min_value", "seed"),
    ({"seed": int("-" + "9" * 4000)}, "integer_below_min_value", "seed"),
    ({"logprobs": 1}, TYPE, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "integer_above_max_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "integer_below_min_value", "top_logprobs"),
    ({"top_logprobs": 2}, VALUE, "top_logprobs"),
    ({"logprobs": False, "top_logprobs": 2}, VALUE, "top_logprobs"),
    ({"logit_bias": ["1"]}, TYPE, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "integer_above_max_value", "logit_bias.1"),
    ({"logit_bias": {"1": 0.5}}, TYPE, "logit_bias.1"),
    ({"logit_bias": {"the": 1}}, VALUE, "logit_bias.the"),
    # stop, stream
    ({"stop": 5}, TYPE, "stop"),
    ({"stop": ""}, "empty_string", "stop"),
    ({"stop": ["a"] * 5}, "array_above_max_length", "stop"),
    ({"stop": ["a", ""]}, "empty_string", "stop[1]"),
    ({"stop": ["a", 1]}, TYPE, "stop[1]"),
    ({"stream": "true"}, TYPE, "stream"),
    ({"stream_options": {}}, VALUE, "stream_options"),
    ({"stream": False, "stream_options": {"include_usage": True}}, VALUE, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, TYPE, "stream_options.include_usage"),
    ({"stream": True, "stream_options": True}, TYPE, "stream_options"),
    # tools
    ({"tools": {}}, TYPE, "tools"),
    ({"tools": [TOOL] * 129}, "array_above_max_length", "tools"),
    ({"tools": [{}]}, MISSING, "tools[0].type"),
    ({"tools": [{"type": "retrieval"}]}, VALUE, "tools[0].type"),
    ({"tools": [TOOL, {"type": "function"}]}, MISSING, "tools[1].function"),
    ({"tools": [{"type": "function", "function": {}}]}, MISSING, "tools[0].function.name"),
    *(
        ({"tools": [{"type": "function", "function": {"name": name}}]}, code, "tools[0].function.name")
        for name, code in (
            ("", "empty_string"),
            ("f" * 65, "string_above_max_length"),
            ("a b", VALUE),
            ("a\n", VALUE),
            ("é", VALUE),
        )
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        TYPE,
        "tools[0].function.parameters",
    ),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}, TYPE, "tools[0].function.strict"),
    ({"tools": [{"type": "custom", "custom": {"name": "a b"}}]}, VALUE, "tools[0].custom.name"),
    (
        {"tools": [{"type": "custom", "custom": {"name": "c", "format": {"type": "json"}}}]},
        VALUE,
        "tools[0].custom.format.type",
    ),
    (
        {
            "tools": [
                {
                    "type": "custom",
                    "custom": {
                        "name": "c",
                        "format": {"type": "grammar", "grammar": {"definition": "", "syntax": "bnf"}},
                    },
                }
            ]
        },
        VALUE,
        "tools[0].custom.format.grammar.syntax",
    ),
    ({"tools": [TOOL], "tool_choice": "any"}, VALUE, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": 1}, TYPE, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {}}, MISSING, "tool_choice.type"),
    ({"tools": [TOOL], "tool_choice": {"type": "function"}}, MISSING, "tool_choice.function"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, VALUE, "tool_choice"),
    ({"tool_choice": "required"}, VALUE, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, VALUE, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any", "tools": []}}},
        VALUE,
        "tool_choice.allowed_tools.mode",
    ),
    ({"parallel_tool_calls": 1}, TYPE, "parallel_tool_calls"),
    ({"functions": [{"name": "f"}] * 129}, "array_above_max_length", "functions"),
    ({"functions": [{"name": "f"}, {}]}, MISSING, "functions[1].name"),
    ({"functions": [{"name": "f", "parameters": 1}]}, TYPE, "functions[0].parameters"),
    ({"functions": [{"name": "f"}], "tools": [TOOL]}, VALUE, "functions"),
    ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, VALUE, "function_call"),
    ({"functions": [{"name": "f"}], "function_call": "f"}, VALUE, "function_call"),
    # the answer's form
    ({"response_format": "json"}, TYPE, "response_format"),
    ({"response_format": {}}, MISSING, "response_format.type"),
    ({"response_format": {"type": "xml"}}, VALUE, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, MISSING, "response_format.json_schema"),
    (schema(schema={}), MISSING, "response_format.json_schema.name"),
    (schema(name="a b", schema={}), VALUE, "response_format.json_schema.name"),
    (schema(name="n" * 65), "string_above_max_length", "response_format.json_schema.name"),
    (schema(name="n", schema=[]), TYPE, "response_format.json_schema.schema"),
    (schema(name="n", strict=1), TYPE, "response_format.json_schema.strict"),
    ({"modalities": ["video"]}, VALUE, "modalities[0]"),
    ({"modalities": ["text", "audio"]}, MISSING, "audio"),
    ({"audio": {"format": "wav"}}, MISSING, "audio.voice"),
    ({"audio": {"voice": "alloy"}}, MISSING, "audio.format"),
    ({"audio": {"voice": "alloy", "format": "ogg"}}, VALUE, "audio.format"),
    ({"audio": {"voice": {}, "format": "wav"}}, MISSING, "audio.voice.id"),
    ({"audio": {"voice": 5, "format": "wav"}}, TYPE, "audio.voice"),
    ({"prediction": {"type": "content"}}, MISSING, "prediction.content"),
    ({"prediction": {"type": "guess", "content": ""}}, VALUE, "prediction.type"),
    # the rest
    ({"reasoning_effort": "huge"}, VALUE, "reasoning_effort"),
    ({"reasoning_effort": 1}, TYPE, "reasoning_effort"),
    ({"verbosity": "loud"}, VALUE, "verbosity"),
    ({"service_tier": "gold"}, VALUE, "service_tier"),
    ({"web_search_options": {"search_context_size": "all"}}, VALUE, "web_search_options.search_context_size"),
    ({"web_search_options": {"user_location": {"type": "exact"}}}, VALUE, "web_search_options.user_location.type"),
    ({"prompt_cache_key": 1}, TYPE, "prompt_cache_key"),
    ({"prompt_cache_options": {"mode": "never"}}, VALUE, "prompt_cache_options.mode"),
    ({"prompt_cache_options": {"ttl": "1h"}}, VALUE, "prompt_cache_options.ttl"),
    ({"prompt_cache_retention": "48h"}, VALUE, "prompt_cache_retention"),
    ({"safety_identifier": "s" * 129}, "string_above_max_length", "safety_identifier"),
    ({"user": 5}, TYPE, "user"),
    ({"store": "no"}, TYPE, "store"),
    ({"metadata": ["a"]}, TYPE, "metadata"),
    ({"metadata": {"a": 1}}, TYPE, "metadata.a"),
    ({"metadata": {"a": "v" * 513}}, "string_above_max_length", "metadata.a"),
    ({"metadata": {"k" * 65: ""}}, "string_above_max_length", "metadata." + "k" * 64),
    ({"metadata": {str(n): "" for n in range(17)}}, VALUE, "metadata"),
    ({"moderation": {}}, MISSING, "moderation.model"),
    ({"moderation": {"model": "m", "policy": {"input": {"mode": "ask"}}}}, VALUE, "moderation.policy.input.mode"),
]  # fmt: skip


def row_name(row: tuple[dict[str, Any], str, str]) -> str:
    return f"{json.dumps(row[0])[:60]}-{row[1]}"


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_a_bad_field_is_refused_with_its_code_and_param(row):
    fields, code, param = row
    error = refusal(json.dumps({"model": "m", "messages": [HI], **fields}).encode())
    assert (error.code, error.param) == (code, param)
    assert param in error.message or "Supported values" in error.message


NAME, ID = "n" * 512, "i" * 16_384
LONGEST = [
    HI | {"name": NAME},
    {"role": "user", "content": [{"type": "file", "file": {"filename": NAME, "file_data": "data:text/plain;base64,"}}]},
    {"role": "assistant", "tool_calls": [CALL | {"id": ID, "function": {"name": NAME, "arguments": "{}"}}]},
    {"role": "assistant", "tool_calls": [{"id": ID, "type": "custom", "custom": {"name": NAME, "input": ""}}]},
    {"role": "tool", "tool_call_id": ID, "content": ""},
    {"role": "assistant", "function_call": {"name": NAME, "arguments": "{}"}},
    {"role": "assistant", "audio": {"id": ID}},
    {"role": "function", "name": NAME, "content": ""},
]  # fmt: skip
TOO_LONG = [
    (0, NAME, "messages[0].name"),
    (1, NAME, "messages[1].content[0].file.filename"),
    (2, ID, "messages[2].tool_calls[0].id"),
    (2, NAME, "messages[2].tool_calls[0].function.name"),
    (3, NAME, "messages[3].tool_calls[0].custom.name"),
    (4, ID, "messages[4].tool_call_id"),
    (5, NAME, "messages[5].function_call.name"),
    (6, ID, "messages[6].audio.id"),
    (7, NAME, "messages[7].name"),
]


@pytest.mark.parametrize(("at", "longest", "param"), TOO_LONG)
def test_names_and_ids_have_a_longest_length(at, longest, param):
    assert decode_chat_request(json.dumps({"model": "m", "messages": LONGEST}).encode()).messages
    one = json.loads(json.dumps(LONGEST[at]).replace(f'"{longest}"', f'"{longest}x"'))
    error = refusal(json.dumps({"model": "m", "messages": [*LONGEST[:at], one, *LONGEST[at + 1 :]]}).encode())
    assert (error.code, error.param) == ("string_above_max_length", param)


def test_every_request_field_has_a_row():
    from gateway.schemas.chat_request import ChatRequest

    assert {name for fields, _, _ in ROWS for name in fields} == set(ChatRequest.field_classes)


@pytest.mark.parametrize(("body", "param"), [
    (b"{}", "model"), (b'{"model":"m"}', "messages"), (b'{"messages":[{"role":"user","content":""}]}', "model"),
])  # fmt: skip
def test_a_missing_top_level_field_is_named(body, param):
    error = refusal(body)
    assert (error.code, error.param) == (MISSING, param)


@pytest.mark.parametrize("body", [
    b"", b" ", b"[]", b"null", b'"x"', b"5", b"{", b'{"model"', b"{}}", b"{'model':1}", b"\xef\xbb\xbf{}", b'{"a":NaN}',
    b'{"a":Infinity}', b'{"a":01}', b'{"a":"\x01"}', b'{"a":"\\q"}', b'{"a":1,}', b'{"a":"\\ud800"}', b'{"\xff":1}',
    b'{"ignored":"\xff"}', b'{"model":"m","messages":[{"role":"user","content":"","x":"\xc3"}]}',
    b'{"a":' + b"[" * 100_000, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"messages":' + b'[{"a":' * 20_000,
    b'{"model":5,"messages":[',
], ids=lambda body: repr(body[:24]))  # fmt: skip
def test_body_that_is_not_a_json_object_is_invalid_json(body):
    error = refusal(body)
    assert (error.code, error.param) == ("invalid_json", None)


@pytest.mark.parametrize(("text", "field", "code"), [
    ("1e999", "temperature", "decimal_above_max_value"), ("-1e999", "top_p", "decimal_below_min_value"),
    ("9" * 5000, "seed", "integer_above_max_value"), ("-" + "9" * 5000, "n", "integer_below_min_value"),
    ("1e3", "max_tokens", TYPE),
])  # fmt: skip
def test_numbers_beyond_every_type_are_refused_as_out_of_range(text, field, code):
    error = refusal(
        b'{"model":"m","messages":[{"role":"user","content":""}],"%b":%b}' % (field.encode(), text.encode())
    )
    assert (error.code, error.param) == (code, field)


def test_error_messages_are_as_helpful_as_openais():
    def message(**fields: Any) -> str:
        return refusal(json.dumps({"model": "m", "messages": [HI], **fields}).encode()).message

    assert message(max_tokens="5") == "Invalid type for 'max_tokens': expected an integer, but got a string instead."
    assert message(stop=5) == "Invalid type for 'stop': expected a string or an array, but got an integer instead."
    assert message(verbosity="x") == "Invalid value: 'x'. Supported values are: 'high', 'low', 'medium'."
    assert message(temperature=3) == (
        "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead."
    )
    assert message(messages=[{"role": "bot"}]) == (
        "Invalid value: 'bot'. Supported values are: 'system', 'developer', 'user', 'assistant', 'tool', 'function'."
    )


def test_a_refusal_never_repeats_more_than_a_little_of_the_body():
    error = refusal(json.dumps({"model": "m", "messages": [{"role": "secret" * 10_000}]}).encode())
    assert len(error.message) < 300


USER = b'{"model":"x","messages":[{"role":"user","content":""}],'


@pytest.mark.parametrize("start, value, end", [
    (b'{"model":"x","messages":[', b"{}", b"]}"),
    (USER + b'"u":[', b"[]", b"]}"),
    (USER + b'"stop":[', b'"a"', b"]}"),
    pytest.param(USER, b'"%x":0', b"}", marks=pytest.mark.slow),
], ids=["messages", "unknown value", "stop", "unknown names"])  # fmt: skip
def test_millions_of_tiny_values_are_refused_before_they_become_objects(start, value, end):
    import tracemalloc

    values = [value % n for n in range(500_000)] if b"%" in value else [value] * 2_000_000
    body = start + b",".join(values) + end
    del values
    tracemalloc.start()
    try:
        refusal(body)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(body)
    finally:
        tracemalloc.stop()


def test_more_values_than_a_large_body_may_have_are_refused():
    error = refusal(b'{"model":"x","messages":[%b]}' % b",".join([b'{"role":"user","content":""}'] * 100_000))
    assert (error.code, error.param) == (VALUE, None)


def test_an_error_among_very_many_messages_has_its_index():
    good = b'{"role":"user","content":""}'
    many = b",".join([good] * 15_000)
    error = refusal(b'{"model":"x","messages":[%b,{"role":"user","content":5}]}' % many)
    assert (error.code, error.param) == (TYPE, "messages[15000].content")
    error = refusal(b'{"model":"x","messages":[%b,{"role":"user"}]}' % many)
    assert (error.code, error.param) == (MISSING, "messages[15000].content")

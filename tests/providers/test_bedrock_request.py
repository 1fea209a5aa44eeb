"""What the `bedrock` provider sends: each translation, every body judged by botocore's model of it."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest, GatewayError
from gateway.schemas.chat_request import decode_chat_request
from gateway_providers.bedrock import BedrockProvider
from gateway_providers.bedrock.models import BedrockFlags, Model, model_of
from gateway_providers.bedrock.request import converse_body
from tests.providers.converse_dialect import ADAPTIVE, BUDGET, PLAIN, asking
from tests.providers.converse_model import faults, url_path

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(24)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(24)).decode()
PDF = base64.b64encode(b"%PDF-1.7 something").decode()
WAV = base64.b64encode(b"RIFF\0\0\0\0WAVE").decode()
TIDE = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}


def function(name: str = "tide", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def call(id: str, name: str = "tide", arguments: str = '{"port": "Brest"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "hi"}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "When is high water?"},
    {"role": "assistant", "content": None, "tool_calls": [call("call_1")]},
    {"role": "tool", "tool_call_id": "call_1", "content": "6:40"},
]


def sent(model: str = BUDGET, *, flags: dict[str, BedrockFlags] | None = None, **fields: Any) -> dict[str, Any]:
    """The body for these fields, which botocore must find nothing wrong with."""
    body = converse_body(asking(**fields), model_of(model, flags or {}))
    for name in ("Converse", "ConverseStream"):
        assert faults(body, model=model, name=name) == []
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


def user(*parts: dict[str, Any], model: str = BUDGET) -> list[dict[str, Any]]:
    """The blocks that parts of a user's message become."""
    blocks: list[dict[str, Any]] = sent(model, messages=[{"role": "user", "content": list(parts)}])["messages"][0][
        "content"
    ]
    return blocks


def refusal(model: str = BUDGET, **fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        converse_body(asking(**fields), model_of(model, {}))
    return caught.value


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def file(media_type: str, data: str = PDF, **fields: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": f"data:{media_type};base64,{data}", **fields}}


def test_validator_refuses_invalid_values() -> None:
    """Otherwise nothing below would prove anything."""
    for body in (
        b'{"messages":[{"role":"user","content":[{"txt":"hi"}]}]}',
        b'{"messages":[{"role":"tool","content":[{"text":"hi"}]}]}',
        b'{"messages":[],"inferenceConfig":{"temperature":2}}',
        b'{"messages":[],"inferenceConfig":{"maxTokens":"9"}}',
        b'{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"bytes":"%"}}}]}]}',
        b'{"messages":[],"toolConfig":{"tools":[]}}',
    ):
        assert faults(body, model=PLAIN, name="Converse") != []


@pytest.mark.parametrize("model", [BUDGET, "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/a.b-v1:0"])
def test_request_path_equals_that_of_botocore(model: str) -> None:
    assert url_path(model, "Converse") == f"/model/{quote(model, safe='')}/converse"
    assert url_path(model, "ConverseStream") == f"/model/{quote(model, safe='')}/converse-stream"


# Roles -------------------------------------------------------------------------------------------------------------


def test_simple_chat_body_has_only_the_required_fields() -> None:
    assert sent() == {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


def test_leading_instructions_are_the_system_prompt_and_later_ones_join_the_users_turn() -> None:
    body = sent(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [text("Be kind."), text("")]},
            USER,
            {"role": "assistant", "content": "Hello."},
            {"role": "system", "content": "Be frank."},
            {"role": "user", "content": "How are you?"},
        ]
    )
    assert body["system"] == [{"text": "Be brief."}, {"text": "Be kind."}]
    assert body["messages"] == [
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"text": "Hello."}]},
        {"role": "user", "content": [{"text": "Be frank."}, {"text": "How are you?"}]},
    ]


def test_turns_alternate_and_empty_texts_are_removed() -> None:
    said = {"role": "assistant", "content": ""}
    body = sent(messages=[USER, {"role": "user", "content": "there"}, said, {"role": "user", "content": [text("x")]}])
    assert body["messages"] == [{"role": "user", "content": [{"text": "hi"}, {"text": "there"}, {"text": "x"}]}]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "assistant", "content": "Hello."}, USER], "messages[0].role"),
        ([{"role": "system", "content": "x"}], "messages"),
        ([{"role": "user", "content": ""}], "messages"),
        ([{"role": "user", "content": ""}, {"role": "assistant", "content": "Hello."}, USER], "messages"),
    ],
)
def test_conversation_must_begin_with_a_user_message(messages: list[Any], param: str) -> None:
    assert refusal(messages=messages).param == param


def test_prefilled_answer_is_refused_for_the_newest_claude() -> None:
    prefilled = [USER, {"role": "assistant", "content": "Four"}]
    assert sent(BUDGET, messages=prefilled)["messages"][-1] == {"role": "assistant", "content": [{"text": "Four"}]}
    assert sent(PLAIN, messages=prefilled)["messages"][-1]["role"] == "assistant"
    assert refusal(ADAPTIVE, messages=prefilled).param == "messages[1].role"


def test_refusals_of_the_assistant_are_sent_as_text() -> None:
    parts = {"role": "assistant", "content": [text("Well, "), {"type": "refusal", "refusal": "no."}]}
    plain = {"role": "assistant", "content": None, "refusal": "No."}
    body = sent(messages=[USER, parts, USER, plain, USER])
    assert body["messages"][1]["content"] == [{"text": "Well, "}, {"text": "no."}]
    assert body["messages"][3]["content"] == [{"text": "No."}]


# Media -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "kind", "data"),
    [
        (f"data:image/png;base64,{PNG}", "png", PNG),
        (f"data:image/png;base64,{JPEG}", "jpeg", JPEG),  # labelled wrong, as callers do
        (f"data:image/jpg;base64,{base64.b64encode(b'something').decode()}", "jpeg", None),
        (f"data:image/gif;base64,{base64.b64encode(b'GIF89a12').decode()}", "gif", None),
        (f"data:image/webp;base64,{base64.b64encode(b'RIFF0000WEBP').decode()}", "webp", None),
    ],
)
def test_image_is_sent_as_base64(url: str, kind: str, data: str | None) -> None:
    blocks = user(text("What is this?"), image(url))
    assert blocks[0] == {"text": "What is this?"}
    assert blocks[1] == {"image": {"format": kind, "source": {"bytes": data or url.split(",")[1]}}}


@pytest.mark.parametrize("url", ["https://example.com/cat.png", "data:image/tiff;base64,AAAA"])
def test_unsupported_image_is_refused_by_its_path(url: str) -> None:
    error = refusal(messages=[{"role": "user", "content": [text("x"), image(url)]}])
    assert (error.code, error.param) == ("unsupported_value", "messages[0].content[1].image_url.url")


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("application/pdf", "pdf"),
        ("text/csv", "csv"),
        ("application/msword", "doc"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
        ("application/vnd.ms-excel", "xls"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
        ("text/html", "html"),
        ("text/plain", "txt"),
        ("text/markdown", "md"),
    ],
)
def test_document_is_sent_as_base64(media_type: str, kind: str) -> None:
    (block,) = user(file(media_type, filename="Tides 2026.xyz"))
    assert block == {"document": {"format": kind, "name": "Tides 2026", "source": {"bytes": PDF}}}


def test_documents_have_valid_and_unique_names() -> None:
    given = ["../Tide_table (final).v2.pdf", "Über — alles!.pdf", None, "", "…", "a" * 500 + ".pdf"]
    given += ["a" * 500 + ".pdf", "document", "[x]-1.tar.gz", "  two  spaces .pdf"]
    blocks = user(*(file("application/pdf", filename=name) for name in given))
    found = [block["document"]["name"] for block in blocks]
    assert found[:5] == ["Tide table (final) v2", "ber alles", "document", "document (2)", "document (3)"]
    assert found[5:] == ["a" * 180, "a" * 180 + " (2)", "document (4)", "[x]-1 tar", "two spaces"]


def test_image_file_is_sent_as_an_image() -> None:
    assert user(file("image/png", PNG)) == [{"image": {"format": "png", "source": {"bytes": PNG}}}]


@pytest.mark.parametrize("media_type", ["application/zip", "video/mp4", ""])
def test_document_of_another_type_is_refused_by_its_path(media_type: str) -> None:
    error = refusal(messages=[{"role": "user", "content": [file(media_type)]}])
    assert (error.code, error.param) == ("unsupported_value", "messages[0].content[0].file.file_data")


def test_audio_is_sent_as_base64() -> None:
    part = {"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}
    assert user(part) == [{"audio": {"format": "wav", "source": {"bytes": WAV}}}]


# Tools -------------------------------------------------------------------------------------------------------------


def test_tools_are_specified_with_their_schemas() -> None:
    tools = [function(description="High water", parameters=TIDE, strict=True), function("clock", description="")]
    tools.append(function("bare", parameters={"properties": {}}))
    assert sent(tools=tools)["toolConfig"] == {
        "tools": [
            {"toolSpec": {"name": "tide", "description": "High water", "inputSchema": {"json": TIDE}, "strict": True}},
            {"toolSpec": {"name": "clock", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
            {"toolSpec": {"name": "bare", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
        ]
    }


@pytest.mark.parametrize(
    ("choice", "theirs", "names"),
    [
        ("auto", None, ["tide", "clock"]),
        ("required", {"any": {}}, ["tide", "clock"]),
        ({"type": "function", "function": {"name": "clock"}}, {"tool": {"name": "clock"}}, ["tide", "clock"]),
        ("allowed auto", None, ["clock"]),
        ("allowed required", {"any": {}}, ["clock"]),
    ],
)
def test_tool_choice_is_translated(choice: Any, theirs: Any, names: list[str]) -> None:
    if str(choice).startswith("allowed"):
        tools = [{"type": "function", "function": {"name": "clock"}}]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": choice.split()[1], "tools": tools}}
    config = sent(tools=[function(), function("clock")], tool_choice=choice)["toolConfig"]
    assert config.get("toolChoice") == theirs
    assert [tool["toolSpec"]["name"] for tool in config["tools"]] == names


def test_tools_are_not_sent_if_tool_choice_is_none() -> None:
    assert "toolConfig" not in sent(tools=[function()], tool_choice="none")
    assert "toolConfig" not in sent(tools=[])


def test_tools_are_sent_if_the_history_has_calls() -> None:
    """Bedrock refuses a history with calls and no tools; there is no choice `none`, so the model chooses."""
    cases: list[dict[str, Any]] = [{"tools": [function()], "tool_choice": "none"}, {}]
    for fields in cases:
        config = sent(messages=CALLED, **fields)["toolConfig"]
        assert [tool["toolSpec"]["name"] for tool in config["tools"]] == ["tide"] and "toolChoice" not in config
    legacy = [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "tide", "arguments": "{}"}},
        {"role": "function", "name": "tide", "content": "6:40"},
    ]
    assert [tool["toolSpec"]["name"] for tool in sent(messages=legacy)["toolConfig"]["tools"]] == ["tide"]


def test_legacy_functions_are_tools() -> None:
    body = sent(functions=[{"name": "tide", "parameters": TIDE}], function_call={"name": "tide"})
    assert body["toolConfig"]["toolChoice"] == {"tool": {"name": "tide"}}


def test_calls_and_results_of_the_history_are_translated() -> None:
    said = {"role": "assistant", "content": "I look.", "tool_calls": [call("call_1"), call("b" * 70, "clock", "")]}
    results: list[Any] = [
        {"role": "tool", "tool_call_id": "call_1", "content": [text("6:"), text("40")]},
        {"role": "tool", "tool_call_id": "b" * 70, "content": ""},
    ]
    turns = sent(messages=[USER, said, {"role": "user", "content": "Well?"}, *results], tools=[function()])["messages"]
    long = turns[1]["content"][2]["toolUse"]["toolUseId"]
    assert turns[1]["content"] == [
        {"text": "I look."},
        {"toolUse": {"toolUseId": "call_1", "name": "tide", "input": {"port": "Brest"}}},
        {"toolUse": {"toolUseId": long, "name": "clock", "input": {}}},
    ]
    assert turns[2]["content"] == [
        {"toolResult": {"toolUseId": "call_1", "content": [{"text": "6:"}, {"text": "40"}]}},
        {"toolResult": {"toolUseId": long, "content": []}},
        {"text": "Well?"},
    ]


@pytest.mark.parametrize("arguments", ["{", "[]", "7", "text", "[" * 5000])
def test_arguments_that_are_not_an_object_are_wrapped(arguments: str) -> None:
    said = {"role": "assistant", "content": None, "tool_calls": [call("call_1", arguments=arguments)]}
    turns = sent(messages=[USER, said, {"role": "tool", "tool_call_id": "call_1", "content": "x"}])["messages"]
    assert turns[1]["content"][0]["toolUse"]["input"] == {"invalid_json": arguments}


def test_custom_tools_are_refused_by_their_path() -> None:
    custom = {"type": "custom", "custom": {"name": "shell"}}
    assert refusal(tools=[function(), custom]).param == "tools[1].type"
    said = {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "s", "input": "x"}}]}
    assert refusal(messages=[USER, said]).param == "messages[1].tool_calls[0].type"


def test_signed_thoughts_are_sent_back_first_and_unsigned_ones_are_dropped() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VhbGVk"},
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "thinking", "thinking": "unsigned", "signature": ""},
        {"type": "something_new"},
    ]
    said = {"role": "assistant", "content": "Four.", "thinking_blocks": blocks, "reasoning_content": "Hmm."}
    assert sent(messages=[USER, said, USER])["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hmm.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "c2VhbGVk"}},
        {"text": "Four."},
    ]
    assert sent(messages=[USER, {**said, "thinking_blocks": None}, USER])["messages"][1]["content"] == [
        {"text": "Four."}
    ]
    assert refusal(messages=[USER, {**said, "thinking_blocks": "x"}, USER]).param == "messages[1].thinking_blocks"


# Limits, sampling, thinking ----------------------------------------------------------------------------------------


def test_limits_and_sampling_fields_are_translated() -> None:
    body = sent(PLAIN, max_tokens=50, temperature=1.7, top_p=0.9, stop=["END", "  ", "\n"])
    assert body["inferenceConfig"] == {"maxTokens": 50, "temperature": 1.0, "topP": 0.9, "stopSequences": ["END"]}
    assert sent(PLAIN, max_completion_tokens=2**60, stop="x")["inferenceConfig"] == {
        "maxTokens": 2**31 - 1,
        "stopSequences": ["x"],
    }


def test_claude_gets_one_sampling_field_and_the_newest_claude_none() -> None:
    assert sent(BUDGET, temperature=0.5, top_p=0.9)["inferenceConfig"] == {"temperature": 0.5}
    assert sent(BUDGET, top_p=0.9)["inferenceConfig"] == {"topP": 0.9}
    assert "inferenceConfig" not in sent(ADAPTIVE, temperature=0.5, top_p=0.9)


@pytest.mark.parametrize(
    ("effort", "budget"),
    [("minimal", 1024), ("low", 1024), ("medium", 4096), ("high", 16384), ("xhigh", 24576), ("max", 32000)],
)
def test_effort_is_a_budget_for_some_claudes(effort: str, budget: int) -> None:
    body = sent(BUDGET, reasoning_effort=effort, temperature=0.5)
    assert body["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": budget}}
    assert body["inferenceConfig"] == {"maxTokens": 4096 + budget}  # and no temperature, which thinking excludes


def test_budget_stays_within_the_callers_limit() -> None:
    """That limit is what money was held for."""
    body = sent(BUDGET, reasoning_effort="high", max_completion_tokens=6000)
    assert body["inferenceConfig"]["maxTokens"] == 6000
    assert 1024 <= body["additionalModelRequestFields"]["thinking"]["budget_tokens"] < 6000
    body = sent(BUDGET, reasoning_effort="high", max_tokens=500)
    assert body == {**sent(), "inferenceConfig": {"maxTokens": 500}}


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high", "xhigh", "max"])
def test_effort_is_a_level_for_newer_claudes(effort: str) -> None:
    body = sent(ADAPTIVE, reasoning_effort=effort)
    assert body["outputConfig"] == {"effort": "low" if effort == "minimal" else effort}
    assert body["additionalModelRequestFields"]["thinking"]["type"] == "adaptive"


def test_effort_none_turns_thinking_off() -> None:
    off = {"thinking": {"type": "disabled"}}
    assert sent(BUDGET, reasoning_effort="none")["additionalModelRequestFields"] == off
    assert sent(ADAPTIVE, reasoning_effort="none")["additionalModelRequestFields"] == off
    assert "additionalModelRequestFields" not in sent(BUDGET)


@pytest.mark.parametrize("effort", ["none", "high"])
def test_effort_is_not_sent_to_models_without_reasoning(effort: str) -> None:
    assert sent(PLAIN, reasoning_effort=effort) == sent(PLAIN)


def test_thinking_is_turned_off_by_fields_that_exclude_it() -> None:
    forced = sent(BUDGET, reasoning_effort="high", tools=[function()], tool_choice="required", temperature=0.5)
    assert "additionalModelRequestFields" not in forced and forced["inferenceConfig"] == {"temperature": 0.5}
    unproved = sent(BUDGET, reasoning_effort="high", tools=[function()], messages=CALLED)
    assert "additionalModelRequestFields" not in unproved
    thought = {**CALLED[1], "thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"}]}
    proved = sent(BUDGET, reasoning_effort="high", tools=[function()], messages=[CALLED[0], thought, CALLED[2]])
    assert proved["additionalModelRequestFields"]["thinking"]["type"] == "enabled"


# The form of the answer, hints ---------------------------------------------------------------------------------------


def test_response_schema_is_sent_as_text() -> None:
    schema = {"name": "tide", "schema": TIDE, "description": "A tide", "strict": True}
    body = sent(response_format={"type": "json_schema", "json_schema": schema}, reasoning_effort="none")
    (described,) = body["outputConfig"]["textFormat"]["structure"].values()
    assert body["outputConfig"]["textFormat"]["type"] == "json_schema"
    assert msgspec.json.decode(described.pop("schema")) == TIDE
    assert described == {"name": "tide", "description": "A tide"}
    assert sent(response_format={"type": "text"}) == sent()


def test_json_object_format_is_refused() -> None:
    error = refusal(response_format={"type": "json_object"})
    assert (error.status, error.code, error.param) == (400, "unsupported_value", "response_format.type")


@pytest.mark.parametrize(
    ("asked", "theirs"),
    [
        ("auto", None),
        ("default", "default"),
        ("flex", "flex"),
        ("priority", "priority"),
        ("fast", "priority"),
        ("scale", None),
    ],
)
def test_service_tier_is_translated(asked: str, theirs: str | None) -> None:
    assert sent(service_tier=asked).get("serviceTier") == (theirs and {"type": theirs})


def test_metadata_entries_valid_for_bedrock_are_sent() -> None:
    given = {"team": "tides", "emoji": "🌊", "long": "x" * 400, "": "empty", "odd!": "x", "mail": "a@b.c"}
    assert sent(metadata=given)["requestMetadata"] == {"team": "tides", "mail": "a@b.c"}
    assert "requestMetadata" not in sent(metadata={"emoji": "🌊"})


def marked(content: str, **breakpoint: Any) -> dict[str, Any]:
    return {**text(content), "prompt_cache_breakpoint": {"mode": "explicit", **breakpoint}}


def test_last_four_breakpoints_become_cache_points() -> None:
    system = {"role": "system", "content": [marked("a"), marked("b", ttl="12h"), text("c")]}
    parts = [
        marked("d", ttl="12h"),
        marked("e", ttl="30m"),
        {**image(f"data:image/png;base64,{PNG}")},
        marked("f", ttl="12h"),
    ]
    body = sent(messages=[system, {"role": "user", "content": parts}])
    short, long = {"cachePoint": {"type": "default"}}, {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "a"}, {"text": "b"}, long, {"text": "c"}]
    blocks = [block for block in body["messages"][0]["content"] if "image" not in block]
    assert blocks == [{"text": "d"}, long, {"text": "e"}, short, {"text": "f"}, short]  # no long life after a short one


def test_breakpoints_are_dropped_for_models_without_a_cache() -> None:
    messages = [{"role": "user", "content": [marked("a"), text("b")]}]
    assert sent(PLAIN, messages=messages)["messages"][0]["content"] == [{"text": "a"}, {"text": "b"}]
    flags = {"*llama4*": BedrockFlags(cache_points=True)}
    assert {"cachePoint": {"type": "default"}} in sent(PLAIN, flags=flags, messages=messages)["messages"][0]["content"]


def test_breakpoint_of_a_tool_result_follows_it() -> None:
    result = {"role": "tool", "tool_call_id": "call_1", "content": [marked("6:40")]}
    content = sent(messages=[*CALLED[:2], result], tools=[function()])["messages"][2]["content"]
    assert [next(iter(block)) for block in content] == ["toolResult", "cachePoint"]


# Models ------------------------------------------------------------------------------------------------------------


def test_operators_flags_take_precedence_and_the_rest_keeps_its_defaults() -> None:
    flags = {
        "*sonnet-4-5*": BedrockFlags(max_output_tokens=9000, additional_fields={"top_k": 40}),
        "*": BedrockFlags(default_max_tokens=2000, cache_points=False),
    }
    body = sent(BUDGET, flags=flags, reasoning_effort="medium")
    assert body["inferenceConfig"] == {"maxTokens": 6096}
    assert body["additionalModelRequestFields"] == {
        "top_k": 40,
        "thinking": {"type": "enabled", "budget_tokens": 4096},
    }
    assert sent(BUDGET, flags=flags, max_tokens=50_000)["inferenceConfig"] == {"maxTokens": 9000}
    assert not model_of(BUDGET, flags).cache_points


@pytest.mark.parametrize(
    ("name", "thinking", "sampling", "cache"),
    [
        (BUDGET, "budget", True, True),
        ("anthropic.claude-3-haiku-20240307-v1:0", "none", True, False),
        ("apac.anthropic.claude-3-7-sonnet-20250219-v1:0", "budget", True, True),
        ("anthropic.claude-opus-4-1-20250805-v1:0", "budget", True, True),
        (ADAPTIVE, "adaptive", False, True),
        (PLAIN, "none", True, False),
        ("eu.amazon.nova-pro-v1:0", "none", True, True),
        ("arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3", "none", True, False),
    ],
)
def test_flags_are_derived_from_model_names(name: str, thinking: str, sampling: bool, cache: bool) -> None:
    model: Model = model_of(name, {})
    assert (model.traits.thinking_mode, model.traits.sampling, model.cache_points) == (thinking, sampling, cache)


def test_flags_of_an_inference_profile_come_from_the_operator() -> None:
    flags = {"arn:aws:*a1b2c3": BedrockFlags(thinking_mode="budget", sampling=True, cache_points=True)}
    name = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3"
    body = sent(name, flags=flags, reasoning_effort="low")
    assert body["additionalModelRequestFields"]["thinking"]["budget_tokens"] == 1024


def test_fields_unknown_to_converse_are_not_supported() -> None:
    honoured = BedrockProvider.chat_fields or frozenset()
    refused = {"n", "logprobs", "top_logprobs", "logit_bias", "modalities", "audio", "web_search_options", "moderation"}
    dropped = {"seed", "presence_penalty", "frequency_penalty", "user", "verbosity", "prediction", "store"}
    assert not (refused | dropped) & honoured
    request = asking(n=2, tools=[function()], response_format={"type": "json_object"}, modalities=["text"])
    assert request.demands() - honoured == {"n"}


# Anything ----------------------------------------------------------------------------------------------------------

contents = st.text(max_size=20)
parts = st.lists(
    st.one_of(
        contents.map(text),
        st.sampled_from(
            [image(f"data:image/png;base64,{PNG}"), file("application/pdf", filename="a.pdf"), marked("x")]
        ),
    ),
    min_size=1,
    max_size=3,
)
turns = st.lists(
    st.one_of(
        st.builds(lambda c: {"role": "user", "content": c}, contents | parts),
        st.builds(lambda c: {"role": "assistant", "content": c}, contents),
        st.builds(lambda c: {"role": "system", "content": c}, contents),
        st.builds(
            lambda i: {"role": "assistant", "content": None, "tool_calls": [call(i)]}, st.sampled_from(["a", "b c"])
        ),
        st.builds(
            lambda i, c: {"role": "tool", "tool_call_id": i, "content": c}, st.sampled_from(["a", "b c"]), contents
        ),
    ),
    min_size=1,
    max_size=6,
)


@given(turns, st.sampled_from([BUDGET, ADAPTIVE, PLAIN]), st.sampled_from([None, "none", "low", "max"]))
def test_every_body_is_a_valid_request_or_a_400(messages: list[Any], model: str, effort: str | None) -> None:
    fields = {"model": "m", "messages": messages, "reasoning_effort": effort}
    try:
        body = converse_body(decode_chat_request(msgspec.json.encode(fields)), model_of(model, {}))
    except GatewayError as error:
        assert isinstance(error, BadRequest)
        return
    assert faults(body, model=model, name="Converse") == []
    roles = [turn["role"] for turn in msgspec.json.decode(body)["messages"]]
    assert all(one != other for one, other in pairwise(roles)) and roles[0] == "user"

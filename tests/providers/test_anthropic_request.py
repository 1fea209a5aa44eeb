"""What the `anthropic` provider sends, row by row of its page; the vendor's own types accept all of it."""

from __future__ import annotations

import base64
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway import Secret, Target, Upstream
from gateway.config.loader import parse
from gateway.errors import BadRequest, GatewayError, UnsupportedParameter
from gateway.testing import FakeUpstream
from gateway_providers.anthropic import AnthropicProvider
from gateway_providers.anthropic.models import OLD_VERSION, ModelFlags, ModelTraits, traits_of
from gateway_providers.anthropic.request import chat_body
from tests import quick
from tests.providers import typed_dicts
from tests.providers.messages_dialect import ADAPTIVE, BUDGET, asking, messages_chat, provider, target

DOCS = (Path(__file__).parents[2] / "docs" / "providers" / "anthropic.md").read_text(encoding="utf-8")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(16)).decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
TIDE = {"type": "function", "function": {"name": "tide", "description": "High water.", "parameters": SCHEMA}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
OLD_FIELDS = {"temperature", "top_p"}  # the vendor's types describe the newest version of the API, which has none
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "aGlkZGVu"}


def faults(body: Any, *, stream: bool = False) -> list[str]:
    """What Anthropic's own types have against a body; they take a second to import."""
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming

    return typed_dicts.faults(body, MessageCreateParamsStreaming if stream else MessageCreateParamsNonStreaming)


def body_of(model: str = ADAPTIVE, *, stream: bool = False, flags: dict[str, Any] | None = None, **fields: Any) -> Any:
    """The body for a request with these fields, which Anthropic's own types must accept without an unknown key."""
    traits = traits_of(model, {"*": msgspec.convert(flags or {}, ModelFlags)})
    asked = {"model": model, **chat_body(asking(**fields), traits), **({"stream": True} if stream else {})}
    body = msgspec.json.decode(msgspec.json.encode(asked))
    described = {name: value for name, value in body.items() if name not in OLD_FIELDS}
    assert quick.is_on or faults(described, stream=stream) == []
    assert traits.version == OLD_VERSION or not OLD_FIELDS & body.keys()
    return body


def messages(*given: dict[str, Any], **fields: Any) -> Any:
    return body_of(messages=list(given), **fields)["messages"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(words: str, **extra: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **extra}


def called(*calls: tuple[str, str, str], **extra: Any) -> dict[str, Any]:
    made = [{"id": id, "type": "function", "function": {"name": n, "arguments": a}} for id, n, a in calls]
    return {"role": "assistant", "content": None, "tool_calls": made, **extra}


def result(id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def refused(**fields: Any) -> GatewayError:
    with pytest.raises(BadRequest) as caught:
        body_of(**fields)
    return caught.value


@pytest.mark.slow
def test_checker_of_the_vendors_types_finds_invalid_bodies() -> None:
    body = body_of(tools=[TIDE])
    body["tools"][0]["input_schema"]["anything"] = 1  # a schema is open
    assert faults(body) == []
    body["surprise"] = 1
    body["tools"][0]["strict"] = "yes"
    del body["max_tokens"]
    assert sorted(faults(body)) == [
        "body.max_tokens: missing",
        "body.surprise: unknown to MessageCreateParamsNonStreaming",
        "body.tools[0].strict: 'yes' is no bool",
    ]
    body = body_of()
    body["messages"][0]["content"][0]["type"] = "texts"
    assert faults(body)


# Messages ----------------------------------------------------------------------------------------------------------


def test_leading_instructions_become_system_blocks_in_order() -> None:
    given = [
        {"role": "system", "content": "One."},
        {"role": "developer", "content": [text("Two."), text(""), text("Three.")]},
        user("hi"),
    ]
    body = body_of(messages=given)
    assert body["system"] == [text("One."), text("Two."), text("Three.")]
    assert body["messages"] == [user([text("hi")])]


def test_later_instructions_join_the_users_turn() -> None:
    later = {"role": "developer", "content": "Be brief."}
    assert messages(user("hi"), {"role": "assistant", "content": "Yes?"}, later, user("Go on")) == [
        user([text("hi")]),
        {"role": "assistant", "content": [text("Yes?")]},
        user([text("Be brief."), text("Go on")]),
    ]


def test_consecutive_messages_of_one_role_are_merged_and_empty_texts_removed() -> None:
    sent = messages(
        user("a"), {"role": "assistant", "content": ""}, user([text(" \n"), text("b")]), user("c"), user(" ")
    )
    assert sent == [user([text("a"), text("b"), text("c")])]


def test_first_turn_must_be_a_user_message() -> None:
    error = refused(messages=[{"role": "system", "content": "s"}, {"role": "assistant", "content": "Hi"}, user("a")])
    assert (error.code, error.param) == ("invalid_value", "messages[1].role")
    assert refused(messages=[{"role": "system", "content": "s"}]).param == "messages"
    assert refused(messages=[user(""), {"role": "assistant", "content": "Hi"}, user("a")]).param == "messages"


@pytest.mark.parametrize(
    ("declared", "data", "sent"),
    [("image/png", PNG, "image/png"), ("image/png", JPEG, "image/jpeg"), ("image/jpg", "AAAA", "image/jpeg")],
)
def test_inline_image_is_sent_as_base64_with_its_detected_type(declared: str, data: str, sent: str) -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:{declared};base64,{data}", "detail": "low"}}
    (turn,) = messages(user([text("look"), part]))
    assert turn["content"][1] == {"type": "image", "source": {"type": "base64", "media_type": sent, "data": data}}


def test_image_url_is_sent_as_a_url() -> None:
    (turn,) = messages(user([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]))
    assert turn["content"] == [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]


def test_documents_are_sent_as_pdf_text_or_image() -> None:
    def file(kind: str, data: str, **extra: Any) -> dict[str, Any]:
        return {"type": "file", "file": {"file_data": f"data:{kind};base64,{data}", **extra}}

    words = base64.b64encode("à lire".encode()).decode()
    (turn,) = messages(
        user([file("application/pdf", PDF, filename="a.pdf"), file("text/markdown", words), file("image/png", PNG)])
    )
    assert turn["content"] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "à lire"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    ]


@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        ({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}, "input_audio", "unsupported_value"),
        (
            {"type": "image_url", "image_url": {"url": "data:image/bmp;base64,Qk0="}},
            "image_url.url",
            "unsupported_value",
        ),
        ({"type": "file", "file": {"file_data": "data:audio/wav;base64,AA=="}}, "file.file_data", "unsupported_value"),
        ({"type": "file", "file": {"file_data": "data:text/plain,hello"}}, "file.file_data", "invalid_value"),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64,/w=="}}, "file.file_data", "invalid_value"),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64,"}}, "file.file_data", "invalid_value"),
    ],
)
def test_part_that_cannot_be_sent_is_refused_by_its_path(part: dict[str, Any], param: str, code: str) -> None:
    error = refused(messages=[user("a"), user([text("b"), part])])
    assert (error.status, error.code, error.param) == (400, code, f"messages[1].content[1].{param}")


# Tools -------------------------------------------------------------------------------------------------------------


def test_tool_calls_and_results_of_a_turn_stay_together() -> None:
    sent = messages(
        user("tides?"),
        called(("call_1", "tide", '{"port": "Brest"}'), ("call_2", "clock", ""), content="One moment."),
        result("call_1", "6:40"),
        result("call_2", [text("now"), text("ish")]),
        user("Thanks"),
    )
    assert sent[1] == {
        "role": "assistant",
        "content": [
            text("One moment."),
            {"type": "tool_use", "id": "call_1", "name": "tide", "input": {"port": "Brest"}},
            {"type": "tool_use", "id": "call_2", "name": "clock", "input": {}},
        ],
    }
    assert sent[2] == user(
        [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "6:40"},
            {"type": "tool_result", "tool_use_id": "call_2", "content": [text("now"), text("ish")]},
            text("Thanks"),
        ]
    )


def test_tool_results_come_before_other_text_of_their_turn() -> None:
    sent = messages(user("a"), called(("c", "clock", "{}")), {"role": "system", "content": "Now"}, result("c", ""))
    assert sent[2] == user([{"type": "tool_result", "tool_use_id": "c"}, text("Now")])


def test_call_ids_of_other_vendors_are_shortened_equally_in_calls_and_results() -> None:
    sent = messages(user("a"), called(("functions.clock:0", "clock", "{}")), result("functions.clock:0", "6"))
    id = sent[1]["content"][0]["id"]
    assert id == sent[2]["content"][0]["tool_use_id"] and id.replace("_", "").isalnum()


@pytest.mark.parametrize("arguments", ["{", "[1]", "7", "text", "[" * 5000])
def test_arguments_that_are_not_an_object_are_wrapped(arguments: str) -> None:
    sent = messages(user("a"), called(("c", "clock", arguments)), result("c", "6"))
    assert sent[1]["content"][0]["input"] == {"invalid_json": arguments}


def test_legacy_functions_become_tools() -> None:
    body = body_of(
        functions=[{"name": "clock"}],
        function_call={"name": "clock"},
        messages=[
            user("a"),
            {"role": "assistant", "content": None, "function_call": {"name": "clock", "arguments": "{}"}},
            {"role": "function", "name": "clock", "content": "6"},
        ],
    )
    use, answer = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert use["name"] == "clock" and answer == {"type": "tool_result", "tool_use_id": use["id"], "content": "6"}
    assert body["tools"] == [{"name": "clock", "input_schema": {"type": "object", "properties": {}}}]
    assert body["tool_choice"] == {"type": "tool", "name": "clock"}
    assert refused(messages=[user("a"), {"role": "function", "name": "clock", "content": "6"}]).param == (
        "messages[1].name"
    )


def test_tools_carry_description_schema_and_strictness() -> None:
    strict = {"type": "function", "function": {**TIDE["function"], "strict": True}}  # type: ignore[dict-item]
    typeless = {"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}
    assert body_of(tools=[strict, CLOCK, typeless])["tools"] == [
        {"name": "tide", "description": "High water.", "input_schema": SCHEMA, "strict": True},
        {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
        {"name": "f", "input_schema": {"type": "object", "properties": {}}},
    ]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (None, None),
        ("auto", None),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "tide"}}, {"type": "tool", "name": "tide"}),
    ],
)
def test_tool_choice_is_translated(asked: Any, sent: Any) -> None:
    assert body_of(tools=[TIDE], tool_choice=asked).get("tool_choice") == sent
    body = body_of(tools=[TIDE], tool_choice=asked, parallel_tool_calls=False)
    assert body["tool_choice"] == (
        sent if asked == "none" else {**(sent or {"type": "auto"}), "disable_parallel_tool_use": True}
    )


def test_allowed_tools_are_the_only_ones_sent() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "clock"}}]}
    body = body_of(tools=[TIDE, CLOCK], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert [tool["name"] for tool in body["tools"]] == ["clock"] and body["tool_choice"] == {"type": "any"}


def test_tool_fields_are_not_sent_without_tools() -> None:
    assert not {"tools", "tool_choice"} & body_of(tools=[], tool_choice="none", parallel_tool_calls=False).keys()


def test_custom_tools_are_refused() -> None:
    assert refused(tools=[TIDE, {"type": "custom", "custom": {"name": "x"}}]).param == "tools[1].type"
    call = {"id": "c", "type": "custom", "custom": {"name": "x", "input": "y"}}
    error = refused(messages=[user("a"), {"role": "assistant", "content": None, "tool_calls": [call]}, user("b")])
    assert (error.code, error.param) == ("unsupported_value", "messages[1].tool_calls[0].type")


def test_adaptive_thinking_model_refuses_a_forced_call() -> None:
    assert refused(model="claude-opus-5-5", tools=[TIDE], tool_choice="required").param == "tool_choice"
    assert body_of("claude-opus-5-5", tools=[TIDE], tool_choice="auto")["tools"]


# Limits and the form of the answer -----------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#what-is-held-3")
@pytest.mark.parametrize(
    ("fields", "flags", "sent"),
    [
        ({}, {}, 4096),
        ({}, {"default_max_tokens": 900}, 900),
        ({"max_tokens": 50}, {}, 50),
        ({"max_completion_tokens": 60}, {}, 60),
        ({"max_tokens": 9000}, {"max_output_tokens": 8000}, 8000),
        ({}, {"default_max_tokens": 9000, "max_output_tokens": 8000}, 8000),
    ],
)
def test_output_limit_is_always_sent(fields: dict[str, Any], flags: dict[str, int], sent: int) -> None:
    assert body_of(flags=flags, **fields)["max_tokens"] == sent


def test_stop_texts_of_whitespace_only_are_dropped() -> None:
    assert body_of(stop=["END", " \n", "."])["stop_sequences"] == ["END", "."]
    assert body_of(stop="END")["stop_sequences"] == ["END"]
    assert "stop_sequences" not in body_of(stop="\n")


def test_temperature_is_clamped_and_takes_precedence_over_top_p() -> None:
    assert body_of(BUDGET, temperature=1.7)["temperature"] == 1
    body = body_of(BUDGET, temperature=0.25, top_p=0.5)
    assert body["temperature"] == 0.25 and "top_p" not in body
    assert body_of(BUDGET, top_p=0.5)["top_p"] == 0.5


@pytest.mark.parametrize("model", [ADAPTIVE, "claude-opus-4-7", "claude-of-next-year"])
def test_sampling_fields_are_not_sent_to_models_that_refuse_them(model: str) -> None:
    assert not {"temperature", "top_p"} & body_of(model, temperature=0.5, top_p=0.5).keys()


def test_newest_api_version_gets_no_sampling_fields() -> None:
    assert "temperature" not in body_of(BUDGET, flags={"version": "2026-10-21"}, temperature=0.5)


def test_json_schema_is_sent_as_output_format() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    body = body_of(response_format=wanted, reasoning_effort="low")
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}
    assert "system" not in body


def test_json_object_is_requested_by_an_instruction() -> None:
    given = [{"role": "system", "content": "s"}, user("a")]
    body = body_of(response_format={"type": "json_object"}, messages=given)
    assert "JSON object" in body["system"][1]["text"] and "output_config" not in body
    assert body_of(response_format={"type": "json_schema", "json_schema": {"name": "any"}})["system"]
    assert "system" not in body_of(response_format={"type": "text"})


def test_safety_identifier_takes_precedence_over_user() -> None:
    assert body_of(user="u")["metadata"] == {"user_id": "u"}
    assert body_of(user="u", safety_identifier="s")["metadata"] == {"user_id": "s"}
    long, other = (body_of(user=name * 300)["metadata"]["user_id"] for name in "ab")
    assert len(long) == 64 and long != other


def test_several_choices_are_refused() -> None:
    assert refused(n=2).param == "n" and body_of(n=1)


def test_stream_is_requested_only_by_streaming_calls() -> None:
    assert body_of(stream=True)["stream"] is True and "stream" not in body_of()


# Thinking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effort", "budget"),
    [("minimal", 1024), ("low", 1024), ("medium", 4096), ("high", 16384), ("xhigh", 24576), ("max", 32000)],
)
def test_thinking_budget_is_added_to_the_output_limit(effort: str, budget: int) -> None:
    body = body_of(BUDGET, reasoning_effort=effort)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert body["max_tokens"] == 4096 + budget and "output_config" not in body


def test_limit_of_the_caller_is_never_raised() -> None:
    """Money is held for it, so the thinking must fit inside."""
    body = body_of(BUDGET, reasoning_effort="high", max_tokens=10_000)
    assert body["max_tokens"] == 10_000 and body["thinking"]["budget_tokens"] == 10_000 - 4096
    body = body_of(BUDGET, reasoning_effort="high", max_completion_tokens=3000)
    assert body["max_tokens"] == 3000 and body["thinking"]["budget_tokens"] == 1500
    body = body_of(BUDGET, reasoning_effort="high", max_tokens=2000)
    assert body["max_tokens"] == 2000 and "thinking" not in body
    assert body_of(ADAPTIVE, reasoning_effort="max", max_tokens=2000)["max_tokens"] == 2000


def test_budget_stays_within_the_models_limit() -> None:
    body = body_of(BUDGET, flags={"max_output_tokens": 20_000}, reasoning_effort="max")
    assert body["max_tokens"] == 20_000 and body["thinking"]["budget_tokens"] == 20_000 - 4096


@pytest.mark.parametrize(
    ("effort", "sent"), [("minimal", "low"), ("low", "low"), ("medium", "medium"), ("xhigh", "xhigh"), ("max", "max")]
)
def test_adaptive_models_get_an_effort_level(effort: str, sent: str) -> None:
    body = body_of(ADAPTIVE, reasoning_effort=effort)
    assert body["output_config"] == {"effort": sent}
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"} and body["max_tokens"] > 4096
    assert body_of("claude-opus-4-6", reasoning_effort="xhigh")["output_config"] == {"effort": "high"}


def test_effort_none_turns_thinking_off_if_the_model_allows_it() -> None:
    assert body_of(BUDGET, reasoning_effort="none")["thinking"] == {"type": "disabled"}
    assert body_of(ADAPTIVE, reasoning_effort="none")["thinking"] == {"type": "disabled"}
    body = body_of("claude-fable-5", reasoning_effort="none")
    assert body["output_config"] == {"effort": "low"} and "thinking" not in body
    assert not {"thinking", "output_config"} & body_of(flags={"thinking_mode": "none"}, reasoning_effort="max").keys()
    assert not {"thinking", "output_config"} & body_of(ADAPTIVE).keys()


@pytest.mark.parametrize("model", [BUDGET, "claude-opus-4-6"])
def test_temperature_is_not_sent_with_thinking(model: str) -> None:
    body = body_of(model, reasoning_effort="high", temperature=0.5, top_p=0.97)
    assert body["thinking"] and "temperature" not in body and body["top_p"] == 0.97
    assert "top_p" not in body_of(model, reasoning_effort="high", top_p=0.5)


@pytest.mark.parametrize("model", [BUDGET, ADAPTIVE])
def test_thinking_is_turned_off_for_a_forced_call(model: str) -> None:
    assert "thinking" not in body_of(model, reasoning_effort="high", tools=[TIDE], tool_choice="required")
    assert body_of(model, reasoning_effort="high", tools=[TIDE])["thinking"]


def test_signed_thinking_is_sent_back_first() -> None:
    blocks = [THOUGHT, REDACTED, {"type": "thinking", "thinking": "unsigned"}, {"type": "other"}]
    answer = called(("c", "clock", "{}"), content="So:", thinking_blocks=blocks, reasoning_content="hm")
    body = body_of(BUDGET, messages=[user("a"), answer, result("c", "6")], tools=[CLOCK], reasoning_effort="low")
    assert body["messages"][1]["content"][:3] == [THOUGHT, REDACTED, text("So:")]
    assert body["thinking"]["type"] == "enabled"


def test_reasoning_details_with_a_signature_count_as_thinking() -> None:
    details = [
        {"type": "reasoning.text", "text": "hm", "signature": "c2lnbmVk", "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "data": "aGlkZGVu"},
        {"type": "reasoning.encrypted", "data": "eA==", "format": "openai-responses-v1"},
        {"type": "reasoning.summary", "summary": "s"},
    ]
    sent = messages(user("a"), {"role": "assistant", "content": "b", "reasoning_details": details}, user("c"))
    assert sent[1]["content"] == [THOUGHT, REDACTED, text("b")]


@pytest.mark.parametrize("key", ["thinking_blocks", "reasoning_details"])
def test_thinking_in_another_shape_is_refused_and_null_is_none(key: str) -> None:
    error = refused(messages=[user("a"), {"role": "assistant", "content": "b", key: "hm"}, user("c")])
    assert (error.code, error.param) == ("invalid_type", f"messages[1].{key}")
    assert messages(user("a"), {"role": "assistant", "content": "b", key: None}, user("c"))


def test_budget_is_not_sent_if_a_call_in_the_history_lacks_its_thinking() -> None:
    """Clients that know OpenAI only do not send thinking back, and Anthropic refuses to go on thinking then."""
    history = [user("a"), called(("c", "clock", "{}")), result("c", "6")]
    assert "thinking" not in body_of(BUDGET, messages=history, tools=[CLOCK], reasoning_effort="high")
    assert body_of(ADAPTIVE, messages=history, tools=[CLOCK], reasoning_effort="high")["thinking"]
    plain = [user("a"), {"role": "assistant", "content": "b"}, user("c")]
    assert body_of(BUDGET, messages=plain, reasoning_effort="high")["thinking"]


def test_prefill_is_sent_only_to_models_that_accept_it() -> None:
    history = [user("a"), {"role": "assistant", "content": "The answer is ( "}]
    body = body_of(BUDGET, messages=history, reasoning_effort="high")
    assert body["messages"][1]["content"] == [text("The answer is (")] and "thinking" not in body
    error = refused(messages=history)
    assert (error.code, error.param) == ("unsupported_value", "messages[1].role")


def test_refusals_are_sent_back_as_text_and_audio_is_not_sent() -> None:
    parts = [{"type": "text", "text": "Well. "}, {"type": "refusal", "refusal": "No."}]
    assert messages(user("a"), {"role": "assistant", "content": parts}, user("b"))[1]["content"] == [
        text("Well. "),
        text("No."),
    ]
    assert messages(user("a"), {"role": "assistant", "refusal": "No."}, user("b"))[1]["content"] == [text("No.")]
    spoken = {"role": "assistant", "audio": {"id": "audio_1"}}
    assert refused(messages=[user("a"), spoken, user("b")]).param == "messages[1].audio"


# Caching -----------------------------------------------------------------------------------------------------------


def mark(ttl: str | None = None) -> dict[str, Any]:
    return {"prompt_cache_breakpoint": {"mode": "explicit", **({"ttl": ttl} if ttl else {})}}


def test_cache_breakpoints_become_cache_control() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}, **mark()}
    body = body_of(
        messages=[
            {"role": "system", "content": [text("s", **mark("12h"))]},
            user([image]),
            called(("c", "clock", "{}")),
            result("c", [text("6", **mark("30m"))]),
        ]
    )
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert body["messages"][2]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}


def test_last_four_breakpoints_are_kept_and_no_lifetime_exceeds_an_earlier_one() -> None:
    ttls = ["12h", "12h", "12h", "30m", "12h", "30m"]
    (turn,) = messages(user([text(str(index), **mark(ttl)) for index, ttl in enumerate(ttls)]))
    kept = [block.get("cache_control", {}).get("ttl") for block in turn["content"]]
    assert kept == [None, None, "1h", "5m", "5m", "5m"]


# Model flags, headers, options ---------------------------------------------------------------------------------------


def test_operators_flags_override_only_the_named_ones() -> None:
    table = {
        "claude-sonnet-4-5*": ModelFlags(default_max_tokens=100),
        "claude-*": ModelFlags(default_max_tokens=200, prefill=False),
    }
    traits = traits_of("claude-sonnet-4-5-20250929", table)
    assert (traits.default_max_tokens, traits.prefill, traits.thinking_mode) == (100, False, "budget")
    assert traits_of("claude-opus-4-6", table).default_max_tokens == 200


@pytest.mark.parametrize(
    ("model", "mode", "sampling", "prefill"),
    [
        ("claude-opus-4-1-20250805", "budget", True, True),
        ("claude-haiku-4-5", "budget", True, True),
        ("claude-sonnet-4-6", "adaptive", True, False),
        ("claude-opus-4-7", "adaptive", False, False),
        ("claude-haiku-5-5", "adaptive", False, False),
        ("claude-3-5-haiku-20241022", "none", True, True),
    ],
)
def test_built_in_flags(model: str, mode: str, sampling: bool, prefill: bool) -> None:
    traits = traits_of(model, {})
    assert (traits.thinking_mode, traits.sampling, traits.prefill) == (mode, sampling, prefill)


async def headers_sent(model: str = ADAPTIVE, **options: Any) -> dict[str, str]:
    async with FakeUpstream(messages_chat) as fake, provider(fake, **options) as subject:
        await subject.chat(asking(), target(model))
        assert fake.seen[0].path == "/v1/messages"
        return fake.seen[0].headers


async def test_credential_and_version_are_sent() -> None:
    key = Secret("literal", "sk-ant-test")
    headers = await headers_sent(api_key=key)
    assert headers["x-api-key"] == "sk-ant-test" and headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers and headers["content-type"] == "application/json"
    headers = await headers_sent(api_key=key, auth="bearer", headers={"anthropic-beta": "a,b"})
    assert headers["authorization"] == "Bearer sk-ant-test" and headers["anthropic-beta"] == "a,b"
    assert "x-api-key" not in headers


async def test_version_is_a_flag_of_the_model() -> None:
    models = {"claude-sonnet-*": ModelFlags(version="2026-10-21")}
    assert (await headers_sent(models=models))["anthropic-version"] == "2026-10-21"
    assert (await headers_sent("claude-opus-5", models=models))["anthropic-version"] == "2023-06-01"


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
async def test_base_url_may_end_with_the_version_of_the_path(ending: str) -> None:
    link = Upstream()
    async with FakeUpstream(messages_chat) as fake:
        subject = AnthropicProvider(AnthropicProvider.Options(base_url=fake.url + ending), link)
        await subject.start()
        await subject.chat(asking(), Target("p", "m"))
        assert fake.seen[0].path == "/v1/messages"
    await link.close()


@pytest.mark.parametrize("address", ["ftp://host", "host", "https://", "https://user:pass@host"])
def test_invalid_base_url_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        AnthropicProvider(AnthropicProvider.Options(base_url=address), Upstream())
    assert "pass@" not in str(caught.value)


async def test_nothing_is_sent_for_a_request_that_is_refused() -> None:
    async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
        with pytest.raises(UnsupportedParameter):
            await subject.chat(asking(n=2), target())
        assert fake.seen == []


# Documentation -----------------------------------------------------------------------------------------------------


def documented(heading: str) -> dict[str, str]:
    """The keys and defaults in the table whose first column is called `heading`."""
    rows = DOCS.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return {row[1].strip("`"): row[2].strip("`") for row in cells}


def shown(value: Any) -> str:
    return "–" if value is None else msgspec.json.encode(value).decode()


def test_every_option_and_flag_is_documented_with_its_default() -> None:
    options = {item.name: item for item in msgspec.structs.fields(AnthropicProvider.Options)}
    defaults = msgspec.structs.asdict(AnthropicProvider.Options())
    assert documented("key") == {name: shown(defaults[name]) for name in options}
    assert list(documented("flag")) == [item.name for item in msgspec.structs.fields(ModelFlags)]
    newest = msgspec.structs.asdict(ModelTraits())
    assert documented("flag") == {name: shown(value) for name, value in newest.items()}


def test_documented_configurations_are_valid() -> None:
    blocks = [part.partition("```")[0] for part in DOCS.split("```toml\n")[1:]]
    settings = parse(tomllib.loads("\n".join(blocks), parse_float=Decimal), file="docs")
    options = settings.provider_options("anthropic", AnthropicProvider.Options)
    assert isinstance(options, AnthropicProvider.Options)
    assert traits_of("claude-sonnet-4-5", options.models).default_max_tokens == 8192

"""What the `gemini` provider sends: each translation, and what it refuses before sending."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import Target
from gateway.errors import BadRequest, InvalidValue, OutOfRange, UnsupportedParameter
from gateway.testing import FakeUpstream, Reply
from gateway_providers.gemini import GeminiProvider
from gateway_providers.gemini.model_flags import ModelFlags, flags_of
from tests.providers.gemini_upstream import HELLO, KEY, PNG, SIGNATURE, TARGET, chat_request, provider, sent

THREE = Target("gemini", "gemini-3-flash-preview", "house-three")
USER = {"role": "user", "content": "hi"}


def called(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def call(id: str, name: str, arguments: str = "{}", **extra: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **extra}


def result(id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def signed(signature: Any) -> dict[str, Any]:
    return {"extra_content": {"google": {"thought_signature": signature}}}


# The way there -----------------------------------------------------------------------------------------------------


async def test_key_is_sent_in_a_header_and_never_in_the_url() -> None:
    async with FakeUpstream() as fake, provider(fake, headers={"X-Title": "t"}) as subject:
        fake.enqueue(Reply.json(HELLO))
        await subject.chat(chat_request(), TARGET)
        seen = fake.seen[0]
    assert seen.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert seen.headers["x-goog-api-key"] == KEY and seen.headers["x-title"] == "t"
    assert "authorization" not in seen.headers and KEY.encode() not in seen.body


async def test_streaming_call_requests_server_sent_events() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(HELLO))
        assert [chunk async for chunk in subject.stream_chat(chat_request(stream=True), TARGET)]
        assert fake.seen[0].path == "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"


async def test_model_with_a_collection_prefix_keeps_its_name() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.json(HELLO))
        await subject.chat(chat_request(), Target("gemini", "tunedModels/mine", ""))
        assert fake.seen[0].path == "/v1beta/tunedModels/mine:generateContent"


# Messages ----------------------------------------------------------------------------------------------------------


async def test_plain_request_is_one_user_turn_and_nothing_else() -> None:
    assert await sent(chat_request()) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


async def test_leading_instructions_become_the_system_instruction_and_later_ones_keep_their_place() -> None:
    body = await sent(
        chat_request(
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            USER,
            {"role": "assistant", "content": "Oui."},
            {"role": "system", "content": "Now in German."},
            {"role": "user", "content": "And you?"},
        )
    )
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}, {"text": "In French."}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"text": "Oui."}]},
        {"role": "user", "parts": [{"text": "Now in German."}, {"text": "And you?"}]},
    ]


async def test_empty_turns_are_removed_and_their_neighbours_merged() -> None:
    body = await sent(chat_request(USER, {"role": "assistant", "content": ""}, {"role": "user", "content": "there?"}))
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}, {"text": "there?"}]}]


async def test_earlier_refusal_is_sent_as_assistant_text() -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    assert (await sent(chat_request(USER, refused, USER)))["contents"][1]["parts"] == [{"text": "I will not."}]


@pytest.mark.parametrize("messages", [[{"role": "system", "content": "Be brief."}], [{"role": "user", "content": ""}]])
async def test_conversation_without_content_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidValue) as caught:
        await sent(chat_request(*messages))
    assert caught.value.param == "messages"


async def test_audio_answer_referred_to_by_its_id_is_refused() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        await sent(chat_request(USER, {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}, USER))
    assert caught.value.param == "messages[1].audio"


# Media -------------------------------------------------------------------------------------------------------------


async def test_media_of_data_urls_are_sent_inline_with_their_detected_type() -> None:
    parts = [
        {"type": "text", "text": "What are these?"},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"}},
    ]
    body = await sent(chat_request({"role": "user", "content": parts}))
    assert body["contents"][0]["parts"] == [
        {"text": "What are these?"},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        {"inlineData": {"mimeType": "audio/mp3", "data": "SUQz"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERg=="}},
    ]


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://www.youtube.com/watch?v=9hE5-98ZeCg", "video/mp4"),
        ("https://youtu.be/9hE5-98ZeCg", "video/mp4"),
        ("https://generativelanguage.googleapis.com/v1beta/files/abc123", None),
    ],
)
async def test_urls_of_google_storage_are_passed_on(url: str, kind: str | None) -> None:
    body = await sent(chat_request({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}))
    expected = {"fileUri": url, **({"mimeType": kind} if kind else {})}
    assert body["contents"][0]["parts"] == [{"fileData": expected}]


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/cat.png",
        "https://169.254.169.254/latest/meta-data",
        "https://youtube.com.evil.example/watch",
        "https://generativelanguage.googleapis.com.evil.example/v1beta/files/x",
        "https://generativelanguage.googleapis.com/v1beta/models",
        "https://user@evil.example/www.youtube.com",
    ],
)
async def test_any_other_url_is_refused_before_anything_is_sent(url: str) -> None:
    text = {"type": "text", "text": "Look:"}
    request = chat_request({"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": url}}]})
    async with FakeUpstream() as fake, provider(fake) as subject:
        with pytest.raises(BadRequest) as caught:
            await subject.chat(request, TARGET)
        assert not fake.seen
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "messages[0].content[1].image_url.url")
    assert "data URL" in caught.value.message and "evil" not in caught.value.message


# Tools -------------------------------------------------------------------------------------------------------------

TIDE = {"type": "function", "function": {"name": "tide", "description": "Tides", "parameters": {"type": "object"}}}
WIND = {"type": "function", "function": {"name": "wind", "strict": True}}


async def test_tools_are_declared_with_their_own_json_schema() -> None:
    body = await sent(chat_request(tools=[TIDE, WIND]))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "tide", "description": "Tides", "parametersJsonSchema": {"type": "object"}},
                {"name": "wind"},
            ]
        }
    ]
    assert "toolConfig" not in body


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        ("none", {"mode": "NONE"}),
        ("auto", {"mode": "AUTO"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "wind"}}, {"mode": "ANY", "allowedFunctionNames": ["wind"]}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "tide"}}]},
            },
            {"mode": "ANY", "allowedFunctionNames": ["tide"]},
        ),
    ],
)
async def test_tool_choice_becomes_a_calling_mode(choice: Any, config: dict[str, Any]) -> None:
    body = await sent(chat_request(tools=[TIDE, WIND], tool_choice=choice))
    assert body["toolConfig"] == {"functionCallingConfig": config}


async def test_allowed_tools_with_auto_mode_are_the_only_ones_declared() -> None:
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "wind"}}]}
    body = await sent(chat_request(tools=[TIDE, WIND], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}))
    assert body["tools"] == [{"functionDeclarations": [{"name": "wind"}]}] and "toolConfig" not in body


async def test_custom_tools_are_refused() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        await sent(chat_request(tools=[TIDE, {"type": "custom", "custom": {"name": "sql"}}]))
    assert caught.value.param == "tools[1].type"


async def test_tool_results_name_their_function_and_come_first_in_their_turn() -> None:
    body = await sent(
        chat_request(
            USER,
            called(call("a", "tide", '{"port": "Brest"}'), call("b", "wind"), content="Let me see."),
            {"role": "user", "content": "Quickly."},
            result("a", '{"high": "04:12"}'),
            result("b", [{"type": "text", "text": "calm"}]),
        )
    )
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "Let me see."},
                {"functionCall": {"id": "a", "name": "tide", "args": {"port": "Brest"}}},
                {"functionCall": {"id": "b", "name": "wind", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "tide", "response": {"high": "04:12"}}},
                {"functionResponse": {"id": "b", "name": "wind", "response": {"result": "calm"}}},
                {"text": "Quickly."},
            ],
        },
    ]


async def test_repeated_call_id_refers_to_the_newest_call() -> None:
    body = await sent(
        chat_request(USER, called(call("x", "tide")), result("x", "1"), called(call("x", "wind")), result("x", "2"))
    )
    names = [
        part["functionResponse"]["name"]
        for turn in body["contents"]
        for part in turn["parts"]
        if "functionResponse" in part
    ]
    assert names == ["tide", "wind"]


async def test_legacy_functions_are_tools() -> None:
    body = await sent(
        chat_request(
            USER,
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "done"},
            functions=[{"name": "f"}],
            function_call={"name": "f"},
        )
    )
    response = body["contents"][2]["parts"][0]["functionResponse"]
    assert (response["name"], response["response"]) == ("f", {"result": "done"})
    assert body["contents"][1]["parts"][0]["functionCall"]["id"] == response["id"]
    assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == ["f"]


@pytest.mark.parametrize("arguments", ["{", "[]", "4"])
async def test_arguments_that_are_not_an_object_are_wrapped(arguments: str) -> None:
    body = await sent(chat_request(USER, called(call("a", "f", arguments)), result("a", "x")))
    assert body["contents"][1]["parts"][0]["functionCall"]["args"] == {"invalid_json": arguments}


# Thought signatures ------------------------------------------------------------------------------------------------


async def signatures(*calls: dict[str, Any], target: Target = THREE) -> list[str | None]:
    results = [result(one["id"], "x") for one in calls]
    body = await sent(chat_request(USER, called(*calls), *results), target=target)
    return [part.get("thoughtSignature") for part in body["contents"][1]["parts"]]


async def test_signature_is_sent_back_unchanged() -> None:
    assert await signatures(call("a", "f", **signed(SIGNATURE)), call("b", "g")) == [SIGNATURE, None]


async def test_missing_signature_is_bypassed_on_the_first_call_only_if_the_model_requires_one() -> None:
    bypass = "skip_thought_signature_validator"
    assert await signatures(call("a", "f"), call("b", "g")) == [bypass, None]
    assert await signatures(call("a", "f"), call("b", "g"), target=TARGET) == [None, None]


@pytest.mark.parametrize("signature", ["", 7, None, "no base64!", ["x"]])
async def test_invalid_signature_counts_as_missing(signature: Any) -> None:
    assert await signatures(call("a", "f", **signed(signature)), target=TARGET) == [None]


async def test_extra_content_of_another_kind_is_ignored() -> None:
    extra: Any
    for extra in ("text", [], {"google": "x"}, {"openai": {}}, None):
        assert await signatures(call("a", "f", extra_content=extra), target=TARGET) == [None]


# Configuration of the generation -----------------------------------------------------------------------------------


async def config(target: Target = TARGET, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await sent(chat_request(**fields), target=target)).get("generationConfig", {})
    return found


async def test_sampling_fields_have_gemini_names() -> None:
    asked: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "stop": "END", "seed": 7, "n": 3}
    asked |= {"presence_penalty": 0.1, "frequency_penalty": -0.2, "logprobs": True, "top_logprobs": 4}
    assert await config(**asked, max_completion_tokens=50) == {
        "temperature": 0.5,
        "topP": 0.9,
        "stopSequences": ["END"],
        "seed": 7,
        "candidateCount": 3,
        "presencePenalty": 0.1,
        "frequencyPenalty": -0.2,
        "responseLogprobs": True,
        "logprobs": 4,
        "maxOutputTokens": 50,
    }
    assert await config(stop=["a", "b", "c", "d"], n=1, logprobs=False) == {"stopSequences": ["a", "b", "c", "d"]}


@pytest.mark.parametrize("seed", [-1, 2**31, 2**63 - 1, -(2**63)])
async def test_seed_fits_in_32_bits(seed: int) -> None:
    first = (await config(seed=seed))["seed"]
    assert 0 <= first < 2**31 and first == (await config(seed=seed))["seed"]


async def test_more_than_eight_choices_are_refused() -> None:
    with pytest.raises(OutOfRange) as caught:
        await config(n=9)
    assert (caught.value.code, caught.value.param) == ("integer_above_max_value", "n")


async def test_json_answers_follow_the_callers_schema() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert await config(response_format=wanted) == {
        "responseMimeType": "application/json",
        "responseJsonSchema": schema,
    }
    assert await config(response_format={"type": "json_object"}) == {"responseMimeType": "application/json"}
    assert await config(response_format={"type": "text"}) == {}


async def test_safety_settings_come_from_the_operator_only() -> None:
    body = await sent(
        chat_request(safety_settings=[{"category": "x"}]), safety={"HARM_CATEGORY_HARASSMENT": "BLOCK_ONLY_HIGH"}
    )
    assert body["safetySettings"] == [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"}]


async def test_audio_answers_request_the_audio_modality_and_a_voice() -> None:
    fields: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "coral", "format": "pcm16"}}
    found = await config(**fields)
    assert found["responseModalities"] == ["AUDIO"]
    assert found["speechConfig"] == {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Aoede"}}}


@pytest.mark.parametrize(("format", "stream"), [("mp3", False), ("opus", False), ("wav", True)])
async def test_audio_answers_in_other_formats_are_refused(format: str, stream: bool) -> None:
    fields: dict[str, Any] = {"modalities": ["text", "audio"], "audio": {"voice": "coral", "format": format}}
    with pytest.raises(BadRequest) as caught:
        await config(**fields, stream=stream)
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "audio.format")


# Thinking ----------------------------------------------------------------------------------------------------------

EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@pytest.mark.parametrize(
    ("model", "levels"),
    [
        ("gemini-3-flash-preview", ["MINIMAL", "MINIMAL", "LOW", "MEDIUM", "HIGH", "HIGH", "HIGH"]),
        ("gemini-3-pro-preview", ["LOW", "LOW", "LOW", "HIGH", "HIGH", "HIGH", "HIGH"]),
        ("gemini-3.1-pro-preview", ["LOW", "LOW", "LOW", "MEDIUM", "HIGH", "HIGH", "HIGH"]),
        ("models/gemini-flash-latest", ["MINIMAL", "MINIMAL", "LOW", "MEDIUM", "HIGH", "HIGH", "HIGH"]),
    ],
)
async def test_efforts_are_levels_from_gemini_3_on(model: str, levels: list[str]) -> None:
    for effort, level in zip(EFFORTS, levels, strict=True):
        found = await config(Target("gemini", model, ""), reasoning_effort=effort)
        assert found == {"thinkingConfig": {"thinkingLevel": level, "includeThoughts": True}}, effort


@pytest.mark.parametrize(
    ("model", "budgets"),
    [
        ("gemini-2.5-flash", [0, 512, 1024, 8192, 24576, 24576, 24576]),
        ("gemini-2.5-flash-lite", [0, 512, 1024, 8192, 24576, 24576, 24576]),
        ("gemini-2.5-pro", [128, 512, 1024, 8192, 24576, 24576, 32768]),
    ],
)
async def test_efforts_are_budgets_before_gemini_3(model: str, budgets: list[int]) -> None:
    for effort, budget in zip(EFFORTS, budgets, strict=True):
        found = (await config(Target("gemini", model, ""), reasoning_effort=effort))["thinkingConfig"]
        assert found == {"thinkingBudget": budget, **({"includeThoughts": True} if budget else {})}, effort


@pytest.mark.parametrize(
    ("model", "limit", "budget"),
    [
        ("gemini-2.5-flash", 60_000, 24_576),
        ("gemini-2.5-flash", 10_000, 5_904),  # 4,096 are left for the answer
        ("gemini-2.5-flash", 100, 50),  # and half of what is tight
        ("gemini-2.5-flash-lite", 100, 0),  # too little for this one to think at all
        ("gemini-2.5-pro", 100, 128),  # which cannot be told not to think
    ],
)
async def test_thinking_budget_stays_within_the_token_limit_and_leaves_room_for_the_answer(
    model: str, limit: int, budget: int
) -> None:
    found = await config(Target("gemini", model, ""), reasoning_effort="high", max_tokens=limit)
    assert (found["maxOutputTokens"], found["thinkingConfig"]["thinkingBudget"]) == (limit, budget)


async def test_limit_above_the_models_maximum_output_is_lowered() -> None:
    assert (await config(reasoning_effort="high", max_tokens=90_000))["maxOutputTokens"] == 65_536
    assert (await config(THREE, reasoning_effort="high", max_tokens=100))["maxOutputTokens"] == 100


@pytest.mark.parametrize("model", ["gemini-2.0-flash", "gemini-2.5-flash-image", "gemini-2.5-flash-preview-tts", "x"])
async def test_models_without_reasoning_get_no_reasoning_fields(model: str) -> None:
    assert await config(Target("gemini", model, ""), reasoning_effort="high") == {}


async def test_models_own_default_applies_without_an_effort() -> None:
    assert await config() == {} and await config(THREE) == {}


def test_operators_patterns_take_precedence() -> None:
    mine = ModelFlags(thinking="level", levels=("LOW", "XHIGH"))
    flags = flags_of("gemini-9-ultra", {"gemini-9*": mine})
    assert flags is mine and flags.level("max") == "XHIGH" and flags.level("medium") == "XHIGH"


# Options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://x"},
        {"base_url": "https://user:pw@example.com"},
        {"project": "p"},
        {"location": "global"},
        {"project": "../p", "location": "global"},
        {"project": "p", "location": "eu/../x"},
    ],
)
def test_invalid_address_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"must be|needs"):
        GeminiProvider(GeminiProvider.Options(**options), None)  # type: ignore[arg-type]

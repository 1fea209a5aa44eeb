"""The presets of the `openai` provider: what each vendor is sent, and what is made of what it answers."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.ioloop import IOLoop

from gateway import ChatCompletion, Secret, Target, Upstream
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.encoders.chat_completion import encode_completion
from gateway.encoders.chat_form import AnswerForm
from gateway.errors import (
    ContentFiltered,
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
)
from gateway.http_server.server import HTTPServer
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.scoring.rerank import RerankRequest
from gateway.testing import FakeUpstream, Reply, Seen, ask, check_provider
from gateway.testing.openai_dialect import ENDINGS, openai_dialect
from gateway_providers.openai import OpenAIProvider, Preset
from gateway_providers.openai.history import short_call_id
from gateway_providers.openai.presets import ALL_FIELDS, PRESETS
from tests.providers import vendor_answers as vendor
from tests.providers.typed_dicts import faults as typed_faults

TARGET = Target("p", "upstream-name", "public-name")
KEY = "sk-canary-presets-4711"
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, preset: str | None, **options: Any) -> AsyncIterator[OpenAIProvider]:
    link = Upstream()
    given = {"base_url": fake.base_url, "preset": preset, "api_key": Secret("literal", KEY), **options}
    subject = OpenAIProvider(OpenAIProvider.Options(**given), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def request(*messages: dict[str, Any], **fields: Any) -> ChatRequest:
    said = list(messages) or [{"role": "user", "content": "hi"}]
    return decode_chat_request(msgspec.json.encode({"model": "public-name", "messages": said, **fields}))


async def sent(preset: str, asked: ChatRequest, **options: Any) -> dict[str, Any]:
    """The body that reaches the vendor."""
    before = dict(asked.fields)
    async with FakeUpstream() as fake, provider(fake, preset, **options) as subject:
        if asked.stream:
            assert [chunk async for chunk in subject.stream_chat(asked, TARGET)]
        else:
            await subject.chat(asked, TARGET)
        body: dict[str, Any] = fake.seen[0].json
    assert asked.fields == before, "the request was changed"
    return body


async def folded(preset: str, frames: list[bytes]) -> ChatCompletion:
    """What becomes of a stream, each frame of which may come in two pieces."""
    async with FakeUpstream() as fake, provider(fake, preset) as subject:
        halves = [piece for frame in frames for piece in (frame[: len(frame) // 2], frame[len(frame) // 2 :])]
        fake.enqueue(vendor.streamed(*halves))
        return await fold_chat(subject.stream_chat(ask(), TARGET))


async def answer_to(preset: str, reply: Reply) -> ChatCompletion:
    async with FakeUpstream() as fake, provider(fake, preset) as subject:
        fake.enqueue(reply)
        return await subject.chat(ask(), TARGET)


# The table -----------------------------------------------------------------------------------------------------------


RENAMED = ALL_FIELDS | set(RerankRequest.field_classes)


def test_every_preset_is_a_valid_choice_and_every_choice_is_a_preset() -> None:
    assert set(typing.get_args(Preset)) == set(PRESETS)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_name_only_existing_fields(preset: str) -> None:
    quirks = PRESETS[preset]
    assert quirks.refused <= ALL_FIELDS and set(quirks.rename) <= RENAMED - quirks.refused
    assert set(quirks.instead) <= ALL_FIELDS - quirks.refused
    assert set(quirks.instead.get("reasoning_effort", {})) <= set(EFFORTS)


# Those that rewrite the most; each takes a second and a half.
@pytest.mark.parametrize(
    "preset", ["mistral", *(pytest.param(one, marks=pytest.mark.slow) for one in ("deepseek", "groq"))]
)
def test_presets_conform(preset: str) -> None:
    options = {"base_url": "{upstream}/v1", "preset": preset, "api_key": Secret("literal", KEY)}
    report = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream(counted), endings=ENDINGS)
    assert {"cut_stream_never_looks_whole", "finish_reasons_are_told", "usage_is_told"} <= set(report)


def counted(seen: Seen) -> Reply:
    """OpenAI's dialect with counts in each stream: some servers send them always, and refuse to be asked for them."""
    if not seen.path.endswith("/chat/completions"):
        return openai_dialect(seen)
    asked = {**seen.json, "stream_options": {"include_usage": True}}
    return openai_dialect(msgspec.structs.replace(seen, body=msgspec.json.encode(asked)))


def test_explicit_base_url_overrides_the_preset() -> None:
    for preset, quirks in PRESETS.items():
        options = OpenAIProvider.Options(preset=preset)  # type: ignore[arg-type]
        assert OpenAIProvider(options, Upstream()).base_url == quirks.base_url
    moved = OpenAIProvider.Options(preset="groq", base_url="https://proxy.invalid/v1/")
    assert OpenAIProvider(moved, Upstream()).base_url == "https://proxy.invalid/v1"
    assert OpenAIProvider(OpenAIProvider.Options(), Upstream()).base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize("preset", ["vllm", "ollama"])
async def test_self_hosted_server_needs_no_key(preset: str) -> None:
    async with FakeUpstream() as fake, provider(fake, preset, api_key=None) as subject:
        await subject.chat(ask(), TARGET)
        assert "authorization" not in fake.seen[0].headers


async def test_configured_headers_are_sent_to_openrouter() -> None:
    headers = {"HTTP-Referer": "https://house.invalid", "X-Title": "House"}
    async with FakeUpstream() as fake, provider(fake, "openrouter", headers=headers) as subject:
        await subject.chat(ask(), TARGET)
        seen = fake.seen[0].headers
    assert (seen["http-referer"], seen["x-title"], seen["authorization"]) == (*headers.values(), f"Bearer {KEY}")


# What is sent --------------------------------------------------------------------------------------------------------

LEVELS: dict[str, list[Any]] = {
    "deepseek": [None, "low", "low", "high", "high", "max", "max"],
    "groq": ["none", "low", "low", "medium", "high", "high", "high"],
    "xai": ["none", "low", "low", "medium", "high", "high", "high"],
    "together": ["none", "low", "low", "medium", "high", "high", "high"],
    "vllm": ["none", "low", "low", "medium", "high", "high", "high"],
    "ollama": ["none", "low", "low", "medium", "high", "high", "high"],
    "mistral": list(EFFORTS),
}


@pytest.mark.parametrize("preset", LEVELS)
async def test_effort_is_translated_to_the_vendors_values(preset: str) -> None:
    for effort, theirs in zip(EFFORTS, LEVELS[preset], strict=True):
        seen = await sent(preset, request(reasoning_effort=effort))
        assert seen.get("reasoning_effort") == theirs
    assert "reasoning_effort" not in await sent(preset, request())


async def test_deepseek_gets_thinking_disabled_for_effort_none() -> None:
    assert (await sent("deepseek", request(reasoning_effort="none")))["thinking"] == {"type": "disabled"}
    assert "thinking" not in await sent("deepseek", request(reasoning_effort="low"))
    own = await sent("deepseek", request(reasoning_effort="none", thinking={"type": "enabled"}))
    assert own["thinking"] == {"type": "enabled"}


async def test_openrouter_gets_a_reasoning_object_and_the_callers_own_is_kept() -> None:
    for effort in EFFORTS:
        seen = await sent("openrouter", request(reasoning_effort=effort))
        assert seen["reasoning"] == {"effort": "xhigh" if effort == "max" else effort}
        assert "reasoning_effort" not in seen
    own = {"max_tokens": 500, "exclude": True}
    routing = {"order": ["Fireworks"]}
    seen = await sent("openrouter", request(reasoning_effort="low", reasoning=own, provider=routing))
    assert seen["reasoning"] == own and seen["provider"] == routing and seen["usage"] == {"include": True}


async def test_configured_effort_and_field_name_override_the_preset() -> None:
    options = {"reasoning_effort": {"medium": "low"}, "rename": {"seed": "random_seed"}}
    seen = await sent("deepseek", request(reasoning_effort="medium", top_k=4), **options)
    assert seen["reasoning_effort"] == "low" and seen["top_k"] == 4
    seen = await sent("mistral", request(seed=4, stream=True), rename={"seed": "seed"}, no_stream_options=False)
    assert seen["seed"] == 4 and seen["stream_options"] == {"include_usage": True}


async def test_mistral_gets_its_own_field_names() -> None:
    body = {"seed": 7, "tools": TOOLS, "tool_choice": "required", "max_completion_tokens": 9, "stream": True}
    seen = await sent("mistral", request(**body))
    assert (seen["random_seed"], seen["tool_choice"], seen["max_tokens"]) == (7, "any", 9)
    assert not {"seed", "stream_options", "max_completion_tokens"} & seen.keys()
    named = {"type": "function", "function": {"name": "tide"}}
    assert (await sent("mistral", request(tools=TOOLS, tool_choice=named)))["tool_choice"] == named


@pytest.mark.parametrize("preset", ["deepseek", "together", "ollama"])
async def test_output_limit_has_the_field_name_of_each_vendor(preset: str) -> None:
    seen = await sent(preset, request(max_completion_tokens=9))
    assert seen["max_tokens"] == 9 and "max_completion_tokens" not in seen


@pytest.mark.parametrize(
    ("asked", "theirs"),
    [
        ("auto", "auto"),
        ("default", "on_demand"),
        ("flex", "flex"),
        ("priority", "performance"),
        ("fast", "performance"),
        ("scale", None),
    ],
)
async def test_service_tiers_have_groqs_own_names(asked: str, theirs: str | None) -> None:
    assert (await sent("groq", request(service_tier=asked))).get("service_tier") == theirs


@pytest.mark.parametrize(("preset", "role"), [("mistral", "system"), ("groq", "system"), ("xai", "developer")])
async def test_developer_role_becomes_system_for_servers_without_it(preset: str, role: str) -> None:
    seen = await sent(preset, request({"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}))
    assert seen["messages"] == [{"role": role, "content": "Be brief."}, {"role": "user", "content": "hi"}]


def asked_again(**fields: Any) -> ChatRequest:
    """A second turn, whose first came with its reasoning and a tool call."""
    call = {"id": "call_9fQ", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    answer = {"role": "assistant", "content": None, "reasoning_content": "Look it up.", "tool_calls": [call]}
    answer["reasoning_details"] = [{"type": "reasoning.text", "text": "Look it up."}]
    result = {"role": "tool", "tool_call_id": "call_9fQ", "content": "6:40"}
    return request({"role": "user", "content": "tide?"}, answer, result, **fields)


def reasoning_in(seen: dict[str, Any]) -> dict[str, Any]:
    said = seen["messages"][1]
    return {name: value for name, value in said.items() if "reasoning" in name}


async def test_deepseek_gets_its_reasoning_back_only_with_tool_calls() -> None:
    back = {"reasoning_content": "Look it up."}
    assert reasoning_in(await sent("deepseek", asked_again(tools=TOOLS))) == back
    assert reasoning_in(await sent("deepseek", asked_again())) == {}
    assert reasoning_in(await sent("deepseek", asked_again(tools=TOOLS, reasoning_effort="none"))) == {}
    disabled = asked_again(tools=TOOLS, thinking={"type": "disabled"})
    assert reasoning_in(await sent("deepseek", disabled)) == {}


@pytest.mark.parametrize(
    ("preset", "names"),
    [
        ("mistral", set()),
        ("groq", {"reasoning"}),
        ("openrouter", {"reasoning_content", "reasoning_details"}),
        ("vllm", {"reasoning_content", "reasoning_details"}),
    ],
)
async def test_reasoning_is_sent_back_under_the_vendors_field_name(preset: str, names: set[str]) -> None:
    assert set(reasoning_in(await sent(preset, asked_again(tools=TOOLS)))) == names


async def test_mistral_gets_matching_call_ids_of_nine_letters() -> None:
    seen = await sent("mistral", asked_again(tools=TOOLS))
    [call], answered = seen["messages"][1]["tool_calls"], seen["messages"][2]["tool_call_id"]
    assert call["id"] == answered == short_call_id("call_9fQ") and len(answered) == 9 and answered.isalnum()
    assert call["function"] == {"name": "tide", "arguments": "{}"}
    assert short_call_id("D681PevKs") == "D681PevKs" and short_call_id("call_a") != short_call_id("call_b")


@pytest.mark.parametrize("preset", ["mistral", "groq"])
async def test_strict_vendor_gets_only_known_fields_of_an_earlier_answer(preset: str) -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "6:40",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "note": 1,
    }
    seen = await sent(preset, request({"role": "user", "content": "tide?"}, answer, {"role": "user", "content": "?"}))
    assert seen["messages"][1] == {"role": "assistant", "content": "6:40"}


async def test_mistral_gets_audio_without_its_format() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
    text = {"type": "text", "text": "What is said?"}
    seen = await sent("mistral", request({"role": "user", "content": [text, sound]}))
    assert seen["messages"][0]["content"] == [text, {"type": "input_audio", "input_audio": "AAAA"}]


@pytest.mark.slow
async def test_groq_gets_only_fields_that_its_own_sdk_knows() -> None:
    from groq.types.chat.completion_create_params import CompletionCreateParams

    fields = {"reasoning_effort": "max", "service_tier": "priority", "max_completion_tokens": 9, "seed": 1}
    for stream in (True, False):
        seen = await sent("groq", asked_again(tools=TOOLS, tool_choice="required", stream=stream, **fields))
        assert typed_faults(seen, CompletionCreateParams) == []


# What a vendor cannot honour -----------------------------------------------------------------------------------------

REFUSED = [
    ("mistral", {"logit_bias": {"50256": -100}}, "logit_bias"),
    ("groq", {"n": 2}, "n"),
    ("deepseek", {"n": 2}, "n"),
    ("ollama", {"logit_bias": {"1": 1}}, "logit_bias"),
    ("vllm", {"web_search_options": {}}, "web_search_options"),
    ("xai", {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "audio"),
]


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Every vendor's server."""
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model at every vendor."""
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                name: {"plugin": "openai", "preset": name, "base_url": upstream.base_url, "api_key": KEY}
                for name in PRESETS
            },
            "groups": {"default": {}},
            "models": {name: {"provider": name, "free": True} for name in PRESETS},
        },
        demo=True,
    )


@pytest.mark.parametrize(("preset", "fields", "param"), REFUSED)
async def test_values_that_a_vendor_would_ignore_or_refuse_are_refused_by_the_gateway(
    preset: str,
    fields: dict[str, Any],
    param: str,
    http_server: HTTPServer,
    base_url: str,
    http_client: AsyncHTTPClient,
    bearer: dict[str, str],
) -> None:
    body = msgspec.json.encode({"model": preset, "messages": [{"role": "user", "content": "hi"}], **fields})
    answer = await http_client.fetch(
        f"{base_url}/v1/chat/completions", method="POST", body=body, headers=bearer, raise_error=False
    )
    error = msgspec.json.decode(answer.body)["error"]
    assert (answer.code, error["code"], error["param"]) == (400, "unsupported_parameter", param)


@pytest.mark.parametrize(
    ("preset", "theirs", "dropped"),
    [
        ("mistral", {"random_seed": 3, "top_k": 5, "safe_prompt": True}, "min_p"),
        ("vllm", {"seed": 3, "top_k": 5, "min_p": 0.1, "user": "u", "store": True}, "safe_prompt"),
        ("llamacpp", {"seed": 3, "top_k": 5, "min_p": 0.1, "user": "u", "store": True}, "safe_prompt"),
        ("deepseek", {"user": "u", "store": True}, "seed,top_k,min_p,safe_prompt"),
    ],
)
async def test_vendor_gets_the_unknown_fields_that_its_preset_names(
    preset: str,
    theirs: dict[str, Any],
    dropped: str,
    http_server: HTTPServer,
    base_url: str,
    http_client: AsyncHTTPClient,
    bearer: dict[str, str],
    upstream: FakeUpstream,
) -> None:
    own = {"top_k": 5, "min_p": 0.1, "safe_prompt": True}
    body = {"model": preset, "messages": [{"role": "user", "content": "hi"}], "seed": 3, "user": "u", "store": True}
    answer = await http_client.fetch(
        f"{base_url}/v1/chat/completions", method="POST", body=msgspec.json.encode({**body, **own}), headers=bearer
    )
    assert upstream.seen[0].json == {"model": preset, "messages": body["messages"], **theirs}
    assert answer.headers.get("x-gateway-dropped-params", "") == dropped


# What comes back -----------------------------------------------------------------------------------------------------

STREAMS = {
    "mistral": (vendor.MISTRAL_STREAM, "length", 21, 44, 0),
    "deepseek": (vendor.DEEPSEEK_STREAM, "stop", 40, 30, 32),
    "groq": (vendor.GROQ_STREAM, "stop", 78, 31, 64),
    "xai": (vendor.XAI_STREAM, "stop", 32, 103, 6),
    "together": (vendor.TOGETHER_STREAM, "stop", 12, 8, 0),
    "openrouter": (vendor.OPENROUTER_STREAM, "stop", 15, 11, 4),
    "vllm": (vendor.VLLM_STREAM, "stop", 9, 12, 0),
}


@pytest.mark.parametrize("preset", STREAMS)
async def test_stream_of_every_vendor_is_read(preset: str) -> None:
    frames, finish, prompt, completion, cached = STREAMS[preset]
    answer = await folded(preset, frames)
    [choice] = answer.choices
    assert (choice.message.content, choice.message.reasoning_content) == ("Four.", "Two pairs.")
    assert choice.finish_reason == finish and answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt, completion)
    assert answer.usage.total_tokens == prompt + completion
    assert answer.usage.prompt_tokens_details.cached_tokens == cached
    answer.usage = answer.usage.public()
    text = encode_completion(answer, AnswerForm("chatcmpl-1", 0, preset))
    for name in (b"cost", b"native_finish", b"token_id", b"warnings", b"x_groq", b"queue_time", b"stop_reason"):
        assert name not in text


async def test_reasoning_details_of_openrouter_are_passed_on() -> None:
    message = (await folded("openrouter", vendor.OPENROUTER_STREAM)).choices[0].message
    assert b"reasoning.text" in msgspec.json.encode(message.reasoning_details)


async def test_whole_tool_call_of_ollama_is_one_call() -> None:
    [choice] = (await folded("ollama", vendor.OLLAMA_CALL_STREAM)).choices
    [call] = choice.message.tool_calls or []
    assert call.id == "call_8x2m1qzt" and call.function and call.function.arguments == '{"port":"Brest"}'


async def test_whole_answers_of_every_vendor_are_read() -> None:
    calls = await answer_to("mistral", Reply.json(vendor.MISTRAL_CALLS))
    assert calls.choices[0].finish_reason == "tool_calls" and calls.choices[0].message.tool_calls
    assert calls.choices[0].message.tool_calls[0].id == "D681PevKs"
    body = b"\n\n\n" + msgspec.json.encode(vendor.DEEPSEEK_WHOLE)  # blank lines while it waits
    deepseek = await answer_to("deepseek", Reply(headers={"Content-Type": "application/json"}, body=body))
    assert deepseek.usage is not None and deepseek.usage.prompt_tokens_details.cached_tokens == 32
    vllm = await answer_to("vllm", Reply.json(vendor.VLLM_WHOLE))
    for answer in (deepseek, vllm):
        message = answer.choices[0].message
        assert (message.content, message.reasoning_content) == ("Four.", "Two pairs.")
    assert b"kv_transfer" not in msgspec.json.encode(vllm) and b"prompt_logprobs" not in msgspec.json.encode(vllm)


@pytest.mark.parametrize(
    ("preset", "frames", "kind"),
    [
        ("deepseek", vendor.DEEPSEEK_OUT_OF_MACHINES, UpstreamOverloaded),
        ("groq", [*vendor.GROQ_STREAM[:2], vendor.event(vendor.GROQ_BROKEN), vendor.DONE], UpstreamOverloaded),
        ("openrouter", [*vendor.OPENROUTER_STREAM[:4], vendor.OPENROUTER_BROKEN, vendor.DONE], UpstreamError),
        ("vllm", vendor.VLLM_BROKEN, UpstreamError),
        ("mistral", [vendor.MISTRAL_STREAM[0], vendor.event({"object": "error", "message": "x"})], UpstreamError),
    ],
)
async def test_error_inside_a_stream_is_raised_even_if_the_done_marker_follows(
    preset: str, frames: list[bytes], kind: type[GatewayError]
) -> None:
    with pytest.raises(kind):
        await folded(preset, frames)


@pytest.mark.parametrize(
    ("preset", "reply", "kind"),
    [
        ("mistral", Reply.json(vendor.MISTRAL_INVALID, status=422), UpstreamRejected),
        ("xai", Reply.json(vendor.XAI_ERROR, status=400), UpstreamRejected),
        ("openrouter", Reply.json(vendor.OPENROUTER_NO_CREDIT), UpstreamOverloaded),
        ("openrouter", Reply.json(vendor.OPENROUTER_NO_CREDIT, status=402), UpstreamOverloaded),
        ("openrouter", Reply.json(vendor.OPENROUTER_MODERATED, status=403), ContentFiltered),
        ("openrouter", Reply.json(vendor.OPENROUTER_MODERATED), ContentFiltered),
        ("groq", Reply.error(498, "flex capacity exceeded", code="capacity_exceeded"), UpstreamOverloaded),
        ("groq", Reply.error(429, "slow", headers={"retry-after": "3"}), UpstreamRateLimited),
        ("together", Reply.error(529, "model is overloaded"), UpstreamOverloaded),
        ("deepseek", Reply.error(402, "Insufficient Balance"), UpstreamOverloaded),
        ("ollama", Reply.json(vendor.OLLAMA_NOT_PULLED, status=404), UpstreamError),
        ("xai", Reply.error(401, f"key {KEY} is wrong"), UpstreamAuthError),
    ],
)
async def test_errors_of_every_shape_are_typed_and_show_no_key(
    preset: str, reply: Reply, kind: type[GatewayError]
) -> None:
    with pytest.raises(kind) as caught:
        await answer_to(preset, reply)
    shown = f"{caught.value} {caught.value.detail} {caught.value.body().decode()}"
    assert KEY not in shown


async def test_message_of_a_validation_error_reaches_the_caller() -> None:
    with pytest.raises(UpstreamRejected) as caught:
        await answer_to("mistral", Reply.json(vendor.MISTRAL_INVALID, status=422))
    assert caught.value.message == "Extra inputs are not permitted"


@pytest.mark.slow
def test_groq_chunks_have_only_fields_that_its_own_sdk_knows() -> None:
    from groq.types.chat import ChatCompletionChunk

    from tests.providers.vendor_models import faults

    for document in (*vendor.GROQ_CHUNKS, vendor.GROQ_BROKEN):
        assert faults(document, ChatCompletionChunk) == []

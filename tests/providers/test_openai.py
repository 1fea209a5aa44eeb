"""The `openai` provider: what it sends, and what it makes of every vendor's habits."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from gateway import ChatChunk, ChatCompletion, Secret, Target, Upstream
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTruncated,
)
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream, Reply, ask
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.chunks import read_completion

TARGET = Target("p", "upstream-name", "public-name")


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, **options: Any) -> AsyncIterator[OpenAIProvider]:
    link = Upstream()
    subject = OpenAIProvider(OpenAIProvider.Options(base_url=fake.base_url, **options), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


async def chunks_of(*frames: Any, done: bool = True, **options: Any) -> list[ChatChunk]:
    async with FakeUpstream() as fake, provider(fake, **options) as subject:
        fake.enqueue(Reply.stream(list(frames), done=done))
        return [chunk async for chunk in subject.stream_chat(ask(), TARGET)]


async def folded(*frames: Any, **options: Any) -> ChatCompletion:
    async def again(chunks: list[ChatChunk]) -> AsyncIterator[ChatChunk]:
        for chunk in chunks:
            yield chunk

    return await fold_chat(again(await chunks_of(*frames, **options)))


async def answer_to(document: Any) -> ChatCompletion:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply(body=document) if isinstance(document, bytes) else Reply.json(document))
        return await subject.chat(ask(), TARGET)


def part(delta: dict[str, Any] | None = None, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish, **extra}]}


HELLO = part({"role": "assistant", "content": "Hello"})
STOP = part({}, "stop")


def whole(message: dict[str, Any], finish: str = "stop", **extra: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}], **extra}


# What is sent ------------------------------------------------------------------------------------------------------


async def sent(body: dict[str, Any], *, stream: bool, target: Target = TARGET, **options: Any) -> dict[str, Any]:
    request = decode_chat_request(
        msgspec.json.encode({"model": "public-name", "messages": [{"role": "user", "content": "hi"}], **body})
    )
    async with FakeUpstream() as fake, provider(fake, **options) as subject:
        if stream:
            assert [chunk async for chunk in subject.stream_chat(request, target)]
        else:
            await subject.chat(request, target)
        seen: dict[str, Any] = fake.seen[0].json
        return seen


async def test_fields_are_sent_unchanged_with_the_upstreams_model_name() -> None:
    body = {"temperature": 0.5, "seed": 7, "top_k": 40, "metadata": {"a": "b"}}
    seen = await sent(body, stream=False)
    assert seen == {"model": "upstream-name", "messages": [{"role": "user", "content": "hi"}], **body}


async def test_stream_always_requests_usage() -> None:
    assert (await sent({"stream": True}, stream=True))["stream_options"] == {"include_usage": True}
    asked = {"stream": True, "stream_options": {"include_usage": False, "include_obfuscation": False}}
    seen = await sent(asked, stream=True)
    assert seen["stream_options"] == {"include_usage": True, "include_obfuscation": False} and seen["stream"] is True


async def test_stream_options_can_be_left_out() -> None:
    assert "stream_options" not in await sent({"stream": True}, stream=True, no_stream_options=True)


async def test_whole_answer_to_a_streaming_request_sends_no_stream_fields() -> None:
    seen = await sent({"stream": True, "stream_options": {"include_usage": True}}, stream=False)
    assert not {"stream", "stream_options"} & seen.keys()


@pytest.mark.parametrize("given", [{"max_tokens": 5}, {"max_completion_tokens": 5}, {"max_tokens": 5, "n": 2}])
@pytest.mark.parametrize("wanted", ["max_tokens", "max_completion_tokens"])
async def test_token_limit_has_the_field_name_of_the_target(given: dict[str, int], wanted: str) -> None:
    seen = await sent(given, stream=False, target=msgspec.structs.replace(TARGET, max_tokens_field=wanted))
    assert {name: seen[name] for name in seen if name.startswith("max_")} == {wanted: 5}


async def test_fields_and_efforts_are_renamed_by_configuration() -> None:
    options: dict[str, Any] = {"rename": {"seed": "random_seed"}, "reasoning_effort": {"minimal": "low"}}
    seen = await sent({"seed": 1, "reasoning_effort": "minimal"}, stream=False, **options)
    assert seen["random_seed"] == 1 and "seed" not in seen and seen["reasoning_effort"] == "low"
    assert (await sent({"reasoning_effort": "high"}, stream=False, **options))["reasoning_effort"] == "high"


async def test_legacy_functions_are_sent_as_tools() -> None:
    seen = await sent({"functions": [{"name": "f", "parameters": {"type": "object"}}]}, stream=False)
    assert seen["tools"][0]["function"]["name"] == "f" and "functions" not in seen


async def test_credentials_and_static_headers_are_sent() -> None:
    async with FakeUpstream() as fake:
        key = Secret("literal", "sk-test")
        async with provider(fake, api_key=key, headers={"X-Title": "t"}, organization="o", project="p") as subject:
            await subject.chat(ask(), TARGET)
        headers = fake.seen[0].headers
    assert headers["authorization"] == "Bearer sk-test" and headers["x-title"] == "t"
    assert (headers["openai-organization"], headers["openai-project"]) == ("o", "p")
    assert fake.seen[0].path == "/v1/chat/completions"


@pytest.mark.parametrize("address", ["ftp://host/v1", "host/v1", "https://", "https://user:pass@host/v1"])
def test_invalid_base_url_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="base_url") as caught:
        OpenAIProvider(OpenAIProvider.Options(base_url=address), Upstream())
    assert "pass@" not in str(caught.value)


# What comes back in a stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
async def test_reasoning_has_one_field_name_in_answers(name: str) -> None:
    chunks = await chunks_of(part({name: "hmm"}), HELLO, STOP)
    assert chunks[0].choices[0].delta.reasoning_content == "hmm"
    assert b'"reasoning":' not in msgspec.json.encode(chunks) and b'"thinking":' not in msgspec.json.encode(chunks)


async def test_reasoning_under_two_names_is_not_doubled() -> None:
    answer = await folded(part({"reasoning": "hmm", "reasoning_content": "hmm"}), HELLO, STOP)
    assert answer.choices[0].message.reasoning_content == "hmm"


async def test_mistral_content_parts_become_text_and_reasoning() -> None:
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}, {"type": "text", "text": "Four"}]
    answer = await folded(part({"content": thought}), part({"content": "."}, "stop"))
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Four.", "hmm")


@pytest.mark.parametrize(
    ("theirs", "ours"), [("eos", "stop"), ("model_length", "length"), ("tool_use", "tool_calls"), ("length", "length")]
)
async def test_finish_reasons_are_translated(theirs: str, ours: str) -> None:
    assert (await folded(HELLO, part({}, theirs))).choices[0].finish_reason == ours


@pytest.mark.parametrize(
    ("reason", "kind"), [("error", UpstreamError), ("insufficient_system_resource", UpstreamOverloaded)]
)
async def test_finish_reasons_that_mean_failure_are_raised(reason: str, kind: type[GatewayError]) -> None:
    with pytest.raises(kind):
        await chunks_of(HELLO, part({}, reason))


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"error": {"message": "boom", "type": "server_error"}}, UpstreamError),
        ({"error": "boom"}, UpstreamError),
        ({"error": {"message": "slow", "code": 429}, **part({}, "error")}, UpstreamRateLimited),
        ({"error": {"message": "bad", "type": "BadRequestError", "code": 400}}, UpstreamRejected),
        ({"error": {"message": "busy", "code": "server_is_overloaded"}, "choices": []}, UpstreamOverloaded),
        ({"error": {"message": "x", "code": "402"}}, UpstreamOverloaded),
        ({"x_groq": {"id": "r", "error": "over capacity"}, "choices": []}, UpstreamOverloaded),
        ({"object": "error", "message": "boom", "type": "internal"}, UpstreamError),
        (b'event: error\ndata: {"message":"boom"}\n\n', UpstreamError),
        ([{"error": {"code": 429, "message": "wrapped in an array"}}], UpstreamRateLimited),
    ],
)
async def test_error_inside_a_stream_is_raised_even_if_the_done_marker_follows(
    frame: Any, kind: type[GatewayError]
) -> None:
    with pytest.raises(kind):
        await chunks_of(HELLO, frame)


async def test_null_error_is_not_an_error() -> None:
    assert await chunks_of({**HELLO, "error": None}, STOP)


async def test_usage_is_found_in_every_vendors_place() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    groq = await folded(HELLO, {**STOP, "x_groq": {"id": "r", "usage": usage}})
    mistral = await folded(HELLO, {**STOP, "usage": usage})
    deepseek = await folded(HELLO, STOP, {"choices": [], "usage": {**usage, "prompt_cache_hit_tokens": 6}})
    continuous = await folded({**HELLO, "usage": {**usage, "completion_tokens": 1}}, {**STOP, "usage": usage})
    for answer in (groq, mistral, deepseek, continuous):
        assert answer.usage is not None and (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 4)
    assert deepseek.usage is not None and deepseek.usage.prompt_tokens_details.cached_tokens == 6


async def test_xai_reasoning_outside_the_completion_is_counted_once() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 30}}
    beside = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 44, **details}
    inside = {"prompt_tokens": 10, "completion_tokens": 34, "total_tokens": 44, **details}
    for usage in (beside, inside):
        answer = await folded(HELLO, STOP, {"choices": [], "usage": usage})
        assert answer.usage is not None and answer.usage.completion_tokens == 34


@pytest.mark.parametrize(
    "usage",
    [{"prompt_tokens": -5, "completion_tokens": 1}, {"prompt_tokens": 10**18}, {"prompt_tokens": "9"}, "many", 7],
)
async def test_impossible_usage_is_ignored(usage: Any) -> None:
    answer = await folded(HELLO, STOP, {"choices": [], "usage": usage})
    assert answer.usage is None and answer.choices[0].message.content == "Hello"


async def test_usage_with_a_number_out_of_range_is_ignored_in_a_whole_answer() -> None:
    usage = b'{"prompt_tokens":9,"completion_tokens_details":{"reasoning_tokens":1e400}}'
    choices = b'[{"message":{"content":"Hello"},"finish_reason":"stop"}]'
    assert read_completion(b'{"choices":%b,"usage":%b}' % (choices, usage)).usage is None


async def test_azure_prelude_and_filter_results_are_dropped() -> None:
    prelude = {"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": [{"x": 1}]}
    filtered = part({"content": "Hi"}, content_filter_results={"hate": {"filtered": False}})
    chunks = await chunks_of(prelude, filtered, STOP)
    assert len(chunks) == 2 and b"filter" not in msgspec.json.encode(chunks)


async def test_unknown_keys_and_nulls_are_dropped() -> None:
    nulls = dict.fromkeys(["audio", "annotations", "images", "reasoning_content", "tool_calls", "function_call"])
    delta = {"role": "assistant", "content": "Hi", "token_ids": [1], **nulls}
    chunks = await chunks_of({**part(delta, stop_reason=None), "metrics": {"x": 1}, "object": None, "id": None}, STOP)
    text = msgspec.json.encode(chunks[0])
    for name in (b"token_ids", b"stop_reason", b"metrics", b"audio", b"annotations", b"images", b"error", b"x_groq"):
        assert name not in text


@pytest.mark.parametrize("streamed", [True, False])
async def test_logprobs_have_the_members_of_the_standard_only(streamed: bool) -> None:
    """llama.cpp gives the `id` of each token."""
    right = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
    given = {"id": 7, **right, "top_logprobs": [{"id": 7, **right}, {"id": 8, "token": "Yo", "logprob": -1.5}, None]}
    logprobs = {"content": [given], "tokens": 1}
    if streamed:
        found = (await chunks_of(part({"content": "Hi"}, logprobs=logprobs), STOP))[0].choices[0].logprobs
    else:
        document = whole({"role": "assistant", "content": "Hi"})
        document["choices"][0]["logprobs"] = logprobs
        found = (await answer_to(document)).choices[0].logprobs
    assert found == {"content": [{**right, "top_logprobs": [right, {"token": "Yo", "logprob": -1.5}]}]}


@pytest.mark.parametrize("logprobs", [{"content": None}, {"content": "x"}, {"tokens": ["Hi"]}, {}])
async def test_logprobs_of_another_form_are_passed_on_unchanged(logprobs: dict[str, Any]) -> None:
    chunks = await chunks_of(part({"content": "Hi"}, logprobs=logprobs), STOP)
    assert chunks[0].choices[0].logprobs == logprobs


async def test_logprobs_are_passed_on_unchanged() -> None:
    logprobs = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}], "refusal": None}
    chunks = await chunks_of(part({"content": "Hi"}, logprobs=logprobs), STOP)
    assert msgspec.json.decode(msgspec.json.encode(chunks[0]))["choices"][0]["logprobs"] == logprobs


def call(arguments: Any, **extra: Any) -> dict[str, Any]:
    return {"function": {"arguments": arguments, **({"name": extra.pop("name")} if "name" in extra else {})}, **extra}


async def test_tool_fragments_without_index_are_distinguished() -> None:
    answer = await folded(
        part({"tool_calls": [call('{"a":', id="call_1", name="f")]}),
        part({"tool_calls": [call("1}")]}),
        part({"tool_calls": [call("{}", id="call_2", name="g")]}),
        part({}, "tool_calls"),
    )
    calls = answer.choices[0].message.tool_calls
    assert calls and [(c.id, c.function and c.function.name, c.function and c.function.arguments) for c in calls] == [
        ("call_1", "f", '{"a":1}'),
        ("call_2", "g", "{}"),
    ]


async def test_arguments_given_as_an_object_become_json_text() -> None:
    chunks = await chunks_of(part({"tool_calls": [call({"a": 1}, id="c", name="f", index="0")]}, "stop"))
    (fragment,) = chunks[0].choices[0].delta.tool_calls or []
    assert fragment.index == 0 and fragment.function and fragment.function.arguments == '{"a":1}'


async def test_extra_content_of_a_tool_call_is_kept() -> None:
    chunks = await chunks_of(
        part({"tool_calls": [call("{}", id="c", name="f", extra_content={"google": {"s": "x"}})]}), STOP
    )
    (fragment,) = chunks[0].choices[0].delta.tool_calls or []
    assert isinstance(fragment.extra_content, Raw) and b"google" in bytes(fragment.extra_content)


async def test_numbers_of_the_wrong_type_are_converted() -> None:
    odd = {"choices": [{"index": "0", "delta": {"content": 4}, "finish_reason": None}], "system_fingerprint": 7}
    answer = await folded(odd, {"choices": [{"index": 0.0, "delta": None, "finish_reason": "stop"}]})
    assert answer.choices[0].message.content == "4"


async def test_obfuscation_and_fingerprint_and_tier_are_kept() -> None:
    extras = {"obfuscation": "xyz", "system_fingerprint": "fp", "service_tier": "default"}
    chunks = await chunks_of({**HELLO, **extras}, STOP)
    assert (chunks[0].obfuscation, chunks[0].system_fingerprint, chunks[0].service_tier) == ("xyz", "fp", "default")
    assert chunks[0].usage is UNSET


# How a stream ends -------------------------------------------------------------------------------------------------


async def test_end_after_a_finish_completes_the_stream_of_compatible_hosts() -> None:
    assert len(await chunks_of(HELLO, STOP, done=False)) == 2


async def test_done_marker_can_be_required() -> None:
    with pytest.raises(UpstreamTruncated):
        await chunks_of(HELLO, STOP, done=False, stream_end="done")


def test_openai_itself_must_send_the_done_marker() -> None:
    assert OpenAIProvider(OpenAIProvider.Options(), Upstream())._needs_done


@pytest.mark.parametrize("frames", [[HELLO], [], [HELLO, part({"content": "x"}, index=1), STOP]])
async def test_stream_without_a_finish_for_every_choice_is_truncated(frames: list[Any]) -> None:
    with pytest.raises(UpstreamTruncated):
        await chunks_of(*frames, done=False)


async def test_frame_that_is_not_json_is_invalid() -> None:
    for frame in (
        b"data: {nope\n\n",
        b"data: 7\n\n",
        b'data: "text"\n\n',
        b"data: \xff\n\n",
        b"data: " + b"[" * 9000 + b"\n\n",
    ):
        with pytest.raises(UpstreamInvalidResponse):
            await chunks_of(HELLO, frame)


async def test_whole_answer_to_a_streaming_call_is_read() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        tool = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        usage = {"prompt_tokens": 1, "completion_tokens": 2}
        fake.enqueue(Reply.json(whole({"content": "Hi", "tool_calls": [tool]}, "tool_calls", usage=usage)))
        answer = await fold_chat(subject.stream_chat(ask(), TARGET))
    message = answer.choices[0].message
    assert message.content == "Hi" and message.tool_calls and message.tool_calls[0].id == "c"
    assert answer.usage is not None and answer.usage.total_tokens == 3


# Whole answers -----------------------------------------------------------------------------------------------------


async def test_unknown_fields_of_a_whole_answer_are_dropped() -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning": "hmm", "annotations": None, "audio": None, "x": 1}
    answer = await answer_to({**whole(message), "prompt_logprobs": None, "kv_transfer_params": None, "error": None})
    text = msgspec.json.encode(answer)
    assert answer.choices[0].message.reasoning_content == "hmm"
    for name in (b"prompt_logprobs", b"kv_", b'"x"', b'"reasoning":', b'"audio"', b'"error"', b"x_groq"):
        assert name not in text


async def test_blank_lines_before_a_whole_answer_are_skipped() -> None:
    assert (await answer_to(b"\n\n\n" + msgspec.json.encode(whole({"content": "Hi"})))).choices


async def test_content_parts_and_object_arguments_of_a_whole_answer_are_converted() -> None:
    thought = [{"type": "thinking", "thinking": "hmm"}, {"type": "text", "text": "Hi"}]
    call = {"id": 7, "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    message = (await answer_to(whole({"content": thought, "tool_calls": [call]}))).choices[0].message
    assert (message.content, message.reasoning_content) == ("Hi", "hmm")
    (made,) = message.tool_calls or []
    assert made.id == "7" and made.function and made.function.arguments == '{"a":1}'


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"error": {"message": "no provider", "code": 502}}, UpstreamError),
        ({"error": {"message": "This model's maximum context length is 10", "code": 400}}, ContextLengthExceeded),
        ({"code": "busy", "error": "at capacity"}, UpstreamOverloaded),
        (whole({"content": ""}, "error"), UpstreamError),
        ({"choices": []}, UpstreamInvalidResponse),
        ({"choices": "x"}, UpstreamInvalidResponse),
    ],
)
async def test_error_inside_a_successful_answer_is_raised(document: Any, kind: type[GatewayError]) -> None:
    with pytest.raises(kind):
        await answer_to(document)

"""What the `cohere` provider makes of answers, streams and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET

from gateway import ChatChunk, ChatCompletion, Secret
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamTruncated,
)
from gateway.testing import FakeUpstream, Reply, ask, check_provider
from gateway_providers.cohere import AT_ONCE, CohereProvider
from tests.polling import at_once
from tests.providers.cohere_dialect import (
    FIXTURES,
    KEY,
    answer_to,
    asking,
    chunks_of,
    cohere,
    document,
    embedding,
    event,
    failure,
    folded,
    frames,
    provider,
    streamed,
    target,
)
from tests.providers.endings import ended

STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ERRORS = sorted(document("errors"))
QUESTION = [{"role": "user", "content": "hi"}]


async def both_ways(name: str, **fields: Any) -> list[ChatCompletion]:
    """The answer of a fixture, whole and as its stream amounts to."""
    request = asking(**fields)
    whole = await answer_to(Reply.json(document(name)), request=request)
    return [whole, await folded(streamed(*frames(name)), request=request)]


def words(answer: ChatCompletion) -> tuple[str | None, str | None]:
    return answer.choices[0].message.content, answer.choices[0].finish_reason


def calls_of(answer: ChatCompletion) -> list[tuple[str, Any, Any]]:
    made = answer.choices[0].message.tool_calls or ()
    return [
        (call.id, call.function.name, msgspec.json.decode(call.function.arguments or ""))
        for call in made
        if call.function
    ]


# Answers and streams -------------------------------------------------------------------------------------------------


async def test_text_and_token_counts_of_the_model_are_read() -> None:
    for answer in await both_ways("text"):
        assert words(answer) == ("Four. That is two and two.", "stop") and len(answer.choices) == 1
        usage = answer.usage
        assert usage and (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (92, 15, 107)
        assert usage.prompt_tokens_details.cached_tokens == 64
        assert answer.service_tier is UNSET
    assert [answer.service_tier for answer in await both_ways("text", service_tier="priority")] == ["default"] * 2


async def test_tool_plan_is_reasoning_and_call_arguments_are_text() -> None:
    for answer in await both_ways("tools"):
        message = answer.choices[0].message
        assert (message.content or None, answer.choices[0].finish_reason) == (None, "tool_calls")
        assert message.reasoning_content == "I will look at both ports."
        assert calls_of(answer) == [
            ("tide_kqx8ep9b4zq1", "tide", {"port": "Brest", "at": {"hour": 6}}),
            ("tide_2pm5wz7c0ta3", "tide", {"port": "Dover — west"}),
            ("clock_9sd1fg6h2jk4", "clock", {}),
        ]


async def test_fragments_of_calls_are_numbered() -> None:
    chunks = await chunks_of(streamed(*frames("tools")))
    fragments = [call for chunk in chunks for part in chunk.choices for call in part.delta.tool_calls or ()]
    assert [call.index for call in fragments] == [0, 0, 0, 1, 1, 2, 2]
    assert fragments[-1].function and fragments[-1].function.arguments == "{}"  # a call without arguments


async def test_thinking_is_separate_from_the_content() -> None:
    for answer in await both_ways("thinking"):
        assert words(answer) == ("Four.", "stop")
        assert answer.choices[0].message.reasoning_content == "Two numbers. Their sum is asked."


async def test_citations_are_dropped() -> None:
    for answer in await both_ways("citations"):
        assert words(answer) == ("Four.", "stop") and b"snippet" not in msgspec.json.encode(answer)


async def test_log_probabilities_have_openais_shape() -> None:
    for answer in await both_ways("logprobs"):
        assert msgspec.to_builtins(answer.choices[0].logprobs)["content"] == [
            {"token": "Four", "logprob": -0.25, "bytes": [70, 111, 117, 114], "top_logprobs": []},
            {"token": ".", "logprob": -0.5, "bytes": [46], "top_logprobs": []},
        ]
    whole = document("logprobs")
    whole["logprobs"] = [
        {"text": "Four.", "token_ids": [1, 2], "logprobs": [-0.25, -0.5]},
        {"token_ids": [], "text": None},
    ]
    found = (await answer_to(Reply.json(whole))).choices[0].logprobs["content"]
    assert [(one["token"], one["logprob"]) for one in found] == [("Four.", -0.75), ("", 0.0)]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("COMPLETE", "stop"),
        ("STOP_SEQUENCE", "stop"),
        ("MAX_TOKENS", "length"),
        ("TOOL_CALL", "tool_calls"),
        ("SOMETHING_NEW", "SOMETHING_NEW"),  # for the gateway to judge
    ],
)
async def test_finish_reasons_are_translated(theirs: str, ours: str) -> None:
    assert (await answer_to(Reply.json({**document("text"), "finish_reason": theirs}))).choices[0].finish_reason == ours
    told = [frame.replace(b"COMPLETE", theirs.encode()) for frame in frames("text")]
    assert (await folded(streamed(*told))).choices[0].finish_reason == ours


@pytest.mark.parametrize(
    ("reason", "error", "kind"),
    [
        ("ERROR", None, UpstreamError),
        ("TIMEOUT", None, UpstreamTimeout),
        ("TIMEOUT", "it took too long", UpstreamTimeout),
        ("ERROR", "something broke", UpstreamError),
        ("ERROR", "the model is overloaded", UpstreamOverloaded),
        ("COMPLETE", "something broke", UpstreamError),
    ],
)
async def test_finish_reasons_that_mean_failure_are_raised(
    reason: str, error: str | None, kind: type[GatewayError]
) -> None:
    last = event("message-end", id="x", delta={"finish_reason": reason, "error": error})
    with pytest.raises(kind) as caught:
        await chunks_of(streamed(*frames("text")[:3], last))
    assert type(caught.value) is kind
    if reason != "COMPLETE":
        with pytest.raises(UpstreamError):
            await answer_to(Reply.json({**document("text"), "finish_reason": reason}))


@pytest.mark.parametrize(
    ("usage", "prompt"),
    [
        ({"billed_units": {"input_tokens": 25.0, "output_tokens": 15.0}}, 25),
        ({"tokens": {}, "billed_units": {"input_tokens": 25.0, "output_tokens": 15.0}}, 25),
        ({"tokens": {"input_tokens": 92.4, "output_tokens": 15.0}}, 92),
        ({"tokens": {"input_tokens": 92.0, "output_tokens": None}}, 92),
        ({"tokens": {"input_tokens": -1.0, "output_tokens": 15.0}}, None),
        ({"tokens": {"input_tokens": "9", "output_tokens": 15.0}}, None),
        ({"tokens": {"input_tokens": 1e30, "output_tokens": 15.0}}, None),
        ({"tokens": 7}, None),
        ({}, None),
        (None, None),
        ("many", None),
    ],
)
async def test_usage_is_rounded_and_impossible_usage_is_none(usage: Any, prompt: int | None) -> None:
    answer = await answer_to(Reply.json({**document("text"), "usage": usage}))
    assert (answer.usage.prompt_tokens if answer.usage else None) == prompt
    last = event("message-end", id="x", delta={"finish_reason": "COMPLETE", "usage": usage})
    answer = await folded(streamed(*frames("text")[:3], last))
    assert (answer.usage.prompt_tokens if answer.usage else None) == prompt


async def test_unknown_events_are_skipped() -> None:
    start, *rest = frames("text")
    strange = [
        event("debug", prompt="x"),
        event("something-new", depth=[1]),
        event("tool-call-delta", index=9, delta={"message": {"tool_calls": {"function": {"arguments": "{}"}}}}),
        event("tool-call-end", index=9),
        event("content-delta", index=0, delta={}),
        event("content-delta", index=0),
    ]
    assert words(await folded(streamed(start, *strange, *rest))) == ("Four. That is two and two.", "stop")


# Ends that are none --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(len(frames("text")) - 1))
async def test_stream_without_its_end_is_truncated(kept: int) -> None:
    with pytest.raises(UpstreamTruncated):
        await chunks_of(streamed(*frames("text")[:kept]))


async def test_end_marker_is_neither_required_nor_sufficient() -> None:
    assert await chunks_of(streamed(*frames("text")[:-1])) == await chunks_of(streamed(*frames("text")))
    with pytest.raises(UpstreamError):
        await chunks_of(streamed(*frames("text")[:3], b"data: [DONE]\n\n"))


@pytest.mark.parametrize("frame", [b"data: {nope\n\n", b"data: 7\n\n", b"data: {}\n\n", b"data: \xff\n\n"])
async def test_frame_of_another_dialect_is_invalid(frame: bytes) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await chunks_of(streamed(*frames("text")[:3], frame))


async def test_error_inside_a_success_status_is_raised() -> None:
    broken = {"error": {"message": "slow", "code": 429}}
    for reply in (Reply.json(broken), streamed(frames("text")[0], event("error", **broken))):
        with pytest.raises(UpstreamRateLimited):
            await chunks_of(reply)
    with pytest.raises(UpstreamRateLimited):
        await answer_to(Reply.json(broken))


async def test_document_instead_of_a_stream_is_one_chunk() -> None:
    whole = await answer_to(Reply.json(document("text")))
    (chunk,) = await chunks_of(Reply.json(document("text")))
    assert (chunk.choices[0].delta.content, chunk.usage) == (whole.choices[0].message.content, whole.usage)


async def test_the_word_error_in_a_text_is_not_an_error() -> None:
    whole = document("text")
    whole["message"]["content"][0]["text"] = 'Say {"error":"boom"} and "error"'
    assert words(await answer_to(Reply.json(whole)))[0] == 'Say {"error":"boom"} and "error"'


# Errors ------------------------------------------------------------------------------------------------------------

EXPECTED: dict[str, tuple[type[GatewayError], int, str]] = {
    "invalid": (UpstreamRejected, 400, "invalid_value"),
    "too_long": (ContextLengthExceeded, 400, "context_length_exceeded"),
    "unauthorized": (UpstreamAuthError, 502, "upstream_auth_error"),
    "payment": (UpstreamOverloaded, 503, "service_unavailable"),
    "forbidden": (UpstreamAuthError, 502, "upstream_auth_error"),
    "not_found": (UpstreamError, 502, "upstream_error"),
    "unprocessable": (UpstreamRejected, 400, "invalid_value"),
    "limited": (UpstreamRateLimited, 429, "slow_down"),
    "invalid_token": (UpstreamAuthError, 502, "upstream_auth_error"),
    "closed": (UpstreamError, 502, "upstream_error"),
    "internal": (UpstreamError, 502, "upstream_error"),
    "not_implemented": (UpstreamError, 502, "upstream_error"),
    "unavailable": (UpstreamError, 502, "upstream_error"),
    "timeout": (UpstreamTimeout, 504, "upstream_timeout"),
}


def test_every_error_of_the_fixtures_is_expected() -> None:
    assert sorted(EXPECTED) == ERRORS


@pytest.mark.parametrize("way", ["whole", "stream", "embed"])
@pytest.mark.parametrize("name", ERRORS)
async def test_each_error_has_its_type_status_and_code(name: str, way: str) -> None:
    kind, status, code = EXPECTED[name]
    with pytest.raises(GatewayError) as caught:
        if way == "embed":
            await vectors_of(failure(name))
        else:
            await (chunks_of(failure(name)) if way == "stream" else answer_to(failure(name)))
    assert (type(caught.value), caught.value.status, caught.value.code) == (kind, status, code)


# Embeddings --------------------------------------------------------------------------------------------------------


async def vectors_of(*replies: Reply, input: Any = ("a", "b")) -> Any:
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        fake.enqueue(*replies)
        return await subject.embed(embedding(input), target())


async def test_vectors_of_all_batches_keep_the_order_of_the_texts() -> None:
    texts = ["x" * (number + 1) for number in range(500)]
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        answer = await subject.embed(embedding(texts), target())
        assert len(fake.seen) == 6
    assert answer.vectors == [[len(text), 0.5] for text in texts]
    assert answer.usage and answer.usage.prompt_tokens == 500 and answer.usage.completion_tokens == 0


async def test_some_batches_run_concurrently_and_one_failure_ends_them() -> None:
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        fake.enqueue(*[Reply.silence()] * (AT_ONCE - 1), failure("limited"))
        with pytest.raises(UpstreamRateLimited):
            await subject.embed(embedding(["x"] * 960), target())
        for position in range(AT_ONCE - 1):
            assert (await fake.wait_ended(position)).outcome == "left"
        assert len(fake.seen) <= AT_ONCE + 1  # the call that took the failed one's place may have begun


@pytest.mark.parametrize(
    "change",
    [
        {"embeddings": {"float": [[0.5]]}},
        {"embeddings": {"float": [[0.5]] * 3}},
        {"embeddings": {"float": [["x"], [0.5]]}},
        {"embeddings": {"float": [[0.5, None], [0.5, 0.5]]}},
        {"embeddings": {"int8": [[1], [2]]}},
        {"embeddings": {"float": None}},
        {"embeddings": None},
    ],
)
async def test_answer_without_a_vector_for_each_text_is_invalid(change: dict[str, Any]) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await vectors_of(Reply.json({**document("embed"), **change}))


@pytest.mark.parametrize("meta", [None, {}, {"billed_units": None}, {"billed_units": {"input_tokens": -1}}, "x"])
async def test_embeddings_without_counts_have_no_usage(meta: Any) -> None:
    answer = await vectors_of(Reply.json({**document("embed"), "meta": meta}))
    assert answer.usage is None and len(answer.vectors) == 2


# The whole of it -----------------------------------------------------------------------------------------------------


def test_provider_conforms() -> None:
    passed = check_provider(
        CohereProvider,
        options={"base_url": "{upstream}", "api_key": Secret("literal", KEY)},
        upstream=FakeUpstream(cohere),
        endings={"length": ended(cohere, "COMPLETE", "MAX_TOKENS")},
    )
    assert "finish_reasons_are_told" in passed
    assert "cancelling_closes_the_upstream" in passed and "frames_may_be_split_anywhere" in passed


async def test_key_and_own_headers_are_sent() -> None:
    async with FakeUpstream(cohere) as fake, provider(fake, headers={"X-Client-Name": "tides"}) as subject:
        await subject.chat(ask(), target())
        await subject.embed(embedding("x"), target("embed-v4.0"))
        for seen, path in zip(fake.seen, ("/v2/chat", "/v2/embed"), strict=True):
            assert (seen.method, seen.path) == ("POST", path) and seen.headers["x-client-name"] == "tides"
            assert seen.headers["authorization"] == f"Bearer {KEY}"
        assert fake.seen[1].json["model"] == "embed-v4.0"


async def test_closing_a_stream_closes_its_socket() -> None:
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        fake.enqueue(msgspec.structs.replace(streamed(*frames("text")[:4]), end="silence"))
        stream = cast("AsyncGenerator[ChatChunk, None]", subject.stream_chat(ask(), target()))
        await anext(stream)
        async with at_once():
            await stream.aclose()
            seen = await fake.wait_ended()
    assert seen.outcome == "left"


async def test_cancelling_embeddings_closes_their_sockets() -> None:
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        fake.enqueue(*[Reply.silence()] * 2)
        task = asyncio.ensure_future(subject.embed(embedding(["x"] * 150), target()))
        await fake.wait_started(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [(await fake.wait_ended(position)).outcome for position in range(2)] == ["left", "left"]


@pytest.mark.parametrize("status", [400, 401, 422, 429, 498, 500])
async def test_no_credential_and_no_address_is_in_an_error_or_a_log(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    found = []
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        fake.enqueue(*[Reply.json({"message": f"key {KEY} at {fake.url}"}, status=status)] * 2)
        for call in (subject.chat(ask(), target()), subject.embed(embedding("x"), target())):
            with pytest.raises(GatewayError) as caught:
                await call
            error = caught.value
            found.append(f"{error!r} {error} {error.detail} {error.param} {error.body().decode()}")
        shown = " ".join([*found, caplog.text, repr(subject)])
        authority = fake.url.removeprefix("http://")
    assert KEY not in f"{shown} {subject.options!r}" and authority not in shown

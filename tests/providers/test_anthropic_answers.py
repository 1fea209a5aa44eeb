"""What the `anthropic` provider makes of answers, streams and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET

from gateway import ChatChunk, ChatCompletion, Secret
from gateway.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    RequestTooLarge,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamTruncated,
)
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.testing import FakeUpstream, Reply, ask, check_provider
from gateway_providers.anthropic import AnthropicProvider
from gateway_providers.anthropic.answer import read_usage
from tests.polling import at_once
from tests.providers.endings import ended
from tests.providers.messages_dialect import (
    FIXTURES,
    answer_to,
    asking,
    chunks_of,
    document,
    event,
    failure,
    folded,
    frames,
    messages_chat,
    provider,
    streamed,
    target,
)

ANSWERS = sorted(path.stem for path in FIXTURES.glob("*.json") if path.stem != "errors")
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ERRORS = sorted(document("errors"))
FAILING = {"overloaded", "broken"}  # streams that end with an error


async def both_ways(name: str) -> list[ChatCompletion]:
    """The answer of a fixture, whole and as its stream amounts to."""
    return [await answer_to(Reply.json(document(name))), await folded(streamed(*frames(name)))]


def words(answer: ChatCompletion) -> tuple[str | None, str | None]:
    return answer.choices[0].message.content, answer.choices[0].finish_reason


# Answers and streams -------------------------------------------------------------------------------------------------


async def test_text_of_all_blocks_is_the_content() -> None:
    for answer in await both_ways("text"):
        assert words(answer) == ("Four. That is two and two.", "stop") and len(answer.choices) == 1
        usage = answer.usage
        assert usage and (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (25, 15, 40)
        assert answer.service_tier == "default"


async def test_parallel_calls_have_their_arguments_as_text() -> None:
    for answer in await both_ways("tools"):
        message = answer.choices[0].message
        assert words(answer) == ("I will look at both ports.", "tool_calls")
        assert [(call.id, call.function and call.function.name) for call in message.tool_calls or ()] == [
            ("toolu_01Brest7RwQxT2mK9pL4sVn", "tide"),
            ("toolu_01Dover3HcYzB8nJ5qM1tXk", "tide"),
            ("toolu_01Clock9DfGhJ2kL4mN6pQr", "clock"),
        ]
        arguments = [call.function.arguments for call in message.tool_calls or () if call.function]
        assert [msgspec.json.decode(text or "") for text in arguments] == [
            {"port": "Brest", "at": {"hour": 6}},
            {"port": "Dover — west"},
            {},
        ]
    whole = (await answer_to(Reply.json(document("tools")))).choices[0].message.tool_calls or []
    assert whole[0].function and whole[0].function.arguments == '{"port":"Brest","at":{"hour":6}}'


async def test_fragments_of_calls_are_numbered_among_the_calls() -> None:
    chunks = await chunks_of(streamed(*frames("tools")))
    fragments = [call for chunk in chunks for part in chunk.choices for call in part.delta.tool_calls or ()]
    assert [call.index for call in fragments] == [0, 0, 0, 0, 1, 1, 2, 2]
    assert [call.id for call in fragments if call.id] == [block["id"] for block in document("tools")["content"][1:]]


async def test_thinking_is_shown_and_can_be_sent_back() -> None:
    for answer in await both_ways("thinking"):
        message = answer.choices[0].message
        assert message.reasoning_content == "Two numbers. Their sum is asked." and words(answer) == ("Four.", "stop")
        assert message.thinking_blocks is not UNSET
        assert msgspec.json.decode(message.thinking_blocks) == document("thinking")["content"][:2]
        usage = answer.usage
        assert usage and usage.completion_tokens == 58
        assert usage.completion_tokens_details.reasoning_tokens == 52


async def test_thinking_is_sent_back_unchanged() -> None:
    for answer in await both_ways("thinking"):
        said = msgspec.json.decode(msgspec.json.encode(answer.choices[0].message))
        history = [{"role": "user", "content": "a"}, said, {"role": "user", "content": "b"}]
        async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
            await subject.chat(asking(messages=history), target())
            sent = fake.seen[0].json["messages"][1]["content"]
        assert sent == [*document("thinking")["content"][:2], {"type": "text", "text": "Four."}]


async def test_cached_tokens_are_part_of_the_prompt_and_cache_writes_are_split_by_lifetime() -> None:
    whole, stream = [answer.usage for answer in await both_ways("cache")]
    assert whole and whole == stream
    details = whole.prompt_tokens_details
    assert whole.prompt_tokens == 21 + 556 + 18890 and whole.completion_tokens == 3
    assert (details.cached_tokens, details.cache_write_tokens) == (18890, 556)
    lives = details.cache_write_tokens_details
    assert lives is not UNSET and (lives.ttl_30m_tokens, lives.ttl_12h_tokens) == (456, 100)
    assert [answer.service_tier for answer in await both_ways("cache")] == ["priority", "priority"]


async def test_refusal_has_its_explanation() -> None:
    for answer in await both_ways("refusal"):
        choice = answer.choices[0]
        assert choice.finish_reason == "content_filter"
        assert choice.message.refusal == "This request could help to do biological harm."


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    ],
)
async def test_stop_reasons_are_translated(theirs: str, ours: str) -> None:
    assert (await answer_to(Reply.json({**document("text"), "stop_reason": theirs}))).choices[0].finish_reason == ours
    told = [frame.replace(b"end_turn", theirs.encode()) for frame in frames("text")]
    assert (await folded(streamed(*told))).choices[0].finish_reason == ours


async def test_counts_of_the_start_come_with_the_first_content_and_those_of_the_end_with_the_finish() -> None:
    chunks = await chunks_of(streamed(*frames("text")))
    assert [chunk.usage is not UNSET for chunk in chunks] == [True, False, False, True]
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("left_out", [{}, {"input_tokens": None, "cache_read_input_tokens": None}])
async def test_counts_missing_in_a_later_event_are_kept(left_out: dict[str, None]) -> None:
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    last = event("message_delta", delta=delta, usage={**left_out, "output_tokens": 7})
    usage = (await folded(streamed(*frames("cache")[:-2], last, event("message_stop")))).usage
    assert usage and (usage.prompt_tokens, usage.completion_tokens) == (21 + 556 + 18890, 7)


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": -3, "cache_read_input_tokens": 10},
        {"output_tokens": "9"},
        {"input_tokens": 10**18},
        {"output_tokens": 1.5},
    ],
)
async def test_impossible_usage_is_ignored(usage: dict[str, Any]) -> None:
    whole = document("text")
    whole["usage"].update(usage)
    answer = await answer_to(Reply.json(whole))
    assert answer.usage is None and words(answer)[1] == "stop"
    assert (await answer_to(Reply.json({**whole, "usage": None}))).usage is None


async def test_tool_call_with_its_input_in_the_start_event_is_read() -> None:
    """Some servers of this dialect send no fragments."""
    block = {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"port": "Brest"}}
    start, *_, last, stop = frames("tools")
    answer = await folded(
        streamed(
            start,
            event("content_block_start", index=0, content_block=block),
            event("content_block_stop", index=0),
            last,
            stop,
        )
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.function and call.function.arguments == '{"port":"Brest"}'


async def test_unknown_blocks_and_events_are_skipped() -> None:
    start, *rest = frames("text")
    foreign = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    strange = [
        event("content_block_start", index=9, content_block=foreign),
        event("content_block_delta", index=9, delta={"type": "input_json_delta", "partial_json": "{}"}),
        event("content_block_delta", index=9, delta={"type": "citations_delta", "citation": {}}),
        event("content_block_stop", index=9),
        event("something_new", index=3),
    ]
    answer = await folded(streamed(start, *strange, *rest))
    assert words(answer) == ("Four. That is two and two.", "stop")
    whole = document("text")
    whole["content"].insert(0, foreign)
    assert words(await answer_to(Reply.json(whole))) == ("Four. That is two and two.", "stop")


async def test_whole_answer_to_a_streaming_request_is_read() -> None:
    for name in ("text", "tools", "thinking", "refusal"):
        whole = await answer_to(Reply.json(document(name)))
        again = await folded(Reply.json(document(name)))
        assert again.choices[0].finish_reason == whole.choices[0].finish_reason and again.usage == whole.usage
        assert again.choices[0].message.tool_calls == whole.choices[0].message.tool_calls
        assert (again.choices[0].message.content or "") == (whole.choices[0].message.content or "")


async def test_no_chunk_comes_before_the_first_content() -> None:
    """So an overload that Anthropic reports inside the stream can be answered by another target."""
    chunks: list[ChatChunk] = []
    async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
        fake.enqueue(streamed(*frames("overloaded")))
        with pytest.raises(UpstreamOverloaded) as caught:
            async for chunk in subject.stream_chat(ask(), target()):
                chunks.append(chunk)
    assert chunks == [] and (caught.value.status, caught.value.code) == (503, "server_is_overloaded")
    assert caught.value.retryable


# Ends that are none --------------------------------------------------------------------------------------------------


async def test_error_inside_a_stream_is_raised_after_the_earlier_chunks() -> None:
    chunks: list[ChatChunk] = []
    async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
        fake.enqueue(streamed(*frames("broken")))
        with pytest.raises(UpstreamError) as caught:
            async for chunk in subject.stream_chat(ask(), target()):
                chunks.append(chunk)
    assert type(caught.value) is UpstreamError and len(chunks) == 1


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", UpstreamOverloaded),
        ("rate_limit_error", UpstreamRateLimited),
        ("api_error", UpstreamError),
        ("timeout_error", UpstreamTimeout),
        ("billing_error", UpstreamOverloaded),
        ("authentication_error", UpstreamAuthError),
        ("invalid_request_error", UpstreamRejected),
    ],
)
async def test_error_events_are_distinguished(kind: str, error: type[GatewayError]) -> None:
    broken = event("error", error={"type": kind, "message": "Something"})
    with pytest.raises(error) as caught:
        await chunks_of(streamed(*frames("text")[:4], broken))
    assert type(caught.value) is error


@pytest.mark.parametrize("kept", range(len(frames("tools"))))
async def test_stream_without_its_last_event_is_truncated_at_any_point(kept: int) -> None:
    with pytest.raises(UpstreamTruncated):
        await chunks_of(streamed(*frames("tools")[:kept]))


@pytest.mark.parametrize(
    "frame",
    [
        b"data: {\n\n",
        b"data: []\n\n",
        event("content_block_delta", index=7, delta={"type": "input_json_delta", "partial_json": "{"}),
        event("message_stop"),
    ],
)
async def test_invalid_events_are_an_invalid_response(frame: bytes) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await chunks_of(streamed(*frames("text")[:1], frame))


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"[]", b"null", b'{"content":null}', b'{"type":"message"}'])
async def test_body_that_is_not_a_message_is_an_invalid_response(body: bytes) -> None:
    with pytest.raises(UpstreamInvalidResponse):
        await answer_to(Reply(body=body))


async def test_error_inside_an_answer_of_status_200_is_raised() -> None:
    with pytest.raises(UpstreamOverloaded):
        await answer_to(Reply.json(document("errors")["overloaded"]["body"]))


# Errors ------------------------------------------------------------------------------------------------------------


EXPECTED: dict[str, tuple[type[GatewayError], int, str, bool]] = {
    "invalid": (UpstreamRejected, 400, "invalid_value", False),
    "prompt_too_long": (ContextLengthExceeded, 400, "context_length_exceeded", False),
    "limit_too_long": (ContextLengthExceeded, 400, "context_length_exceeded", False),
    "filtered": (ContentFiltered, 400, "content_filter", False),
    "credit": (UpstreamOverloaded, 503, "service_unavailable", True),
    "usage_limit": (UpstreamOverloaded, 503, "service_unavailable", True),
    "spend_limit": (UpstreamOverloaded, 503, "service_unavailable", True),
    "billing": (UpstreamOverloaded, 503, "service_unavailable", True),
    "rate": (UpstreamRateLimited, 429, "slow_down", True),
    "ramp": (UpstreamRateLimited, 429, "slow_down", True),
    "authentication": (UpstreamAuthError, 502, "upstream_auth_error", True),
    "permission": (UpstreamAuthError, 502, "upstream_auth_error", True),
    "not_found": (UpstreamError, 502, "upstream_error", True),
    "too_large": (RequestTooLarge, 413, "request_too_large", False),
    "internal": (UpstreamError, 502, "upstream_error", True),
    "timeout": (UpstreamTimeout, 504, "upstream_timeout", True),
    "overloaded": (UpstreamOverloaded, 503, "server_is_overloaded", True),
}


def test_every_error_of_the_fixtures_is_expected() -> None:
    assert sorted(EXPECTED) == ERRORS


@pytest.mark.parametrize("name", ERRORS)
async def test_errors_are_translated(name: str) -> None:
    kind, status, code, retryable = EXPECTED[name]
    for stream in (False, True):
        with pytest.raises(GatewayError) as caught:
            await (chunks_of(failure(name)) if stream else answer_to(failure(name)))
        error = caught.value
        assert type(error) is kind and (error.status, error.code, error.retryable) == (status, code, retryable)
    waits = {"rate": 17, "ramp": 9}
    assert name not in waits or error.retry_after == waits[name]


async def test_no_error_shows_the_credential_or_the_address() -> None:
    key = "an-unusual-key-0123456789"
    leak = {"type": "error", "error": {"type": "invalid_request_error"}}
    async with FakeUpstream(messages_chat) as fake, provider(fake, api_key=Secret("literal", key)) as subject:
        leak["error"]["message"] = f"{key} refused at {fake.url}/v1"  # type: ignore[index]
        replies = [Reply.json(leak, status=status) for status in (400, 401, 500, 529)]
        for reply in [*replies, streamed(event("error", error=leak["error"]))]:
            fake.enqueue(reply)
            with pytest.raises(GatewayError) as caught:
                await fold_chat(subject.stream_chat(ask(), target()))
            error = caught.value
            shown = f"{error} {error.message} {error.detail} {error.param} {error.body().decode()}"
            assert key not in shown and "127.0.0.1" not in shown
        assert key not in f"{subject.options!r} {subject!r}"


# Leaving -------------------------------------------------------------------------------------------------------------


async def test_closing_a_stream_closes_the_upstreams_socket() -> None:
    async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
        fake.enqueue(msgspec.structs.replace(streamed(*frames("text")[:4]), end="silence"))
        stream = cast("AsyncGenerator[ChatChunk, None]", subject.stream_chat(ask(), target()))
        await anext(stream)
        async with at_once():
            await stream.aclose()
            seen = await fake.wait_ended()
        assert seen.outcome == "left"


async def test_cancelling_a_call_closes_the_upstreams_socket() -> None:
    async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
        fake.enqueue(Reply.silence())
        task = asyncio.ensure_future(subject.chat(ask(), target()))
        await fake.wait_started()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await fake.wait_ended()).outcome == "left"


# The kit -------------------------------------------------------------------------------------------------------------


def test_anthropic_conforms() -> None:
    key = Secret("literal", "an-unusual-key-0123456789")
    passed = check_provider(
        AnthropicProvider,
        options={"base_url": "{upstream}", "api_key": key},
        upstream=FakeUpstream(messages_chat),
        endings={"length": ended(messages_chat, "end_turn", "max_tokens")},
    )
    cases = {"cut_stream_never_looks_whole", "output_limit_is_sent", "tools_are_sent", "images_are_sent"}
    assert cases <= set(passed)
    assert set(passed.skipped) == {"refusals_of_the_vendor_become_typed_errors"}


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ({"cache_creation_input_tokens": 300}, (300, 0, 0)),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200}}, (300, 100, 200)),
        (
            {
                "cache_creation_input_tokens": 300,
                "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 200},
            },
            (300, 100, 200),
        ),
    ],
)
def test_tokens_written_to_the_cache_count_once_with_and_without_their_parts(
    counts: dict[str, Any], parts: tuple[int, int, int]
) -> None:
    usage = read_usage({"input_tokens": 10, "output_tokens": 5, **counts})
    assert usage is not None
    details = usage.prompt_tokens_details
    found = details.cache_write_tokens_details
    kept = (found.ttl_30m_tokens, found.ttl_12h_tokens) if found is not UNSET else (0, 0)
    assert (usage.prompt_tokens, details.cache_write_tokens, *kept) == (310, *parts)

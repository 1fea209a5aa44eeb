"""What the `bedrock` provider makes of answers, streams and errors; botocore reads the same fixtures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from functools import cache, partial
from typing import Any, cast

import botocore.config
import botocore.exceptions
import botocore.session
import msgspec
import pytest
from msgspec import UNSET

from gateway import ChatChunk, ChatCompletion, Secret
from gateway.errors import (
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamTruncated,
)
from gateway.testing import FakeUpstream, Reply, ask, check_provider
from gateway_providers.bedrock import BedrockProvider
from tests.polling import at_once
from tests.providers.converse_dialect import (
    FIXTURES,
    KEY_ID,
    REGION,
    SECRET,
    TOKEN,
    answer_to,
    asking,
    chunks_of,
    converse,
    document,
    event,
    exception,
    failure,
    folded,
    frame,
    frames,
    keys,
    provider,
    streamed,
    target,
)

ANSWERS = sorted(path.name.removesuffix(".events.json") for path in FIXTURES.glob("*.events.json"))
ERRORS = sorted(document("errors"))


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


# botocore as the judge of our fixtures, and of our fake upstream ------------------------------------------------------


@cache
def session() -> Any:
    """One for all tests, since it keeps the models it has read from its files."""
    return botocore.session.Session()


async def asked_by_botocore(reply: Reply, operation: str) -> Any:
    """What an unmodified AWS client makes of `reply`."""

    def ask() -> Any:
        client = session().create_client(
            "bedrock-runtime",
            region_name=REGION,
            endpoint_url=fake.url,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=botocore.config.Config(retries={"total_max_attempts": 1}, proxies={}),
        )
        with contextlib.closing(client):
            messages = [{"role": "user", "content": [{"text": "hi"}]}]
            answer = getattr(client, operation)(modelId="m", messages=messages)
            if "stream" not in answer:
                return answer
            with contextlib.closing(answer["stream"]) as stream:
                return list(stream)

    async with FakeUpstream(converse) as fake:
        fake.enqueue(reply)
        return await asyncio.to_thread(ask)


def known(theirs: Any, ours: Any) -> Any:
    """`ours` without the padding that botocore does not know, sealed thoughts as the bytes that it makes of them."""
    if isinstance(ours, dict):
        found = {name: known(theirs.get(name), value) for name, value in ours.items() if name != "p"}
        return {name: theirs[name] if isinstance(theirs.get(name), bytes) else value for name, value in found.items()}
    return [known(*pair) for pair in zip(theirs, ours, strict=True)] if isinstance(ours, list) else ours


@pytest.mark.parametrize("name", ANSWERS)
async def test_botocore_reads_every_field_of_an_answer(name: str) -> None:
    theirs = await asked_by_botocore(Reply.json(document(name)), "converse")
    theirs.pop("ResponseMetadata")
    assert theirs == known(theirs, document(name))


@pytest.mark.parametrize("name", ANSWERS)
async def test_botocore_reads_every_field_of_a_stream(name: str) -> None:
    theirs = await asked_by_botocore(streamed(*frames(name)), "converse_stream")
    ours = [{kind: fields} for kind, fields in document(f"{name}.events")]
    assert theirs == known(theirs, ours)


@pytest.mark.parametrize("name", ANSWERS)
async def test_botocore_and_the_provider_read_the_same_from_a_stream(name: str) -> None:
    theirs = await asked_by_botocore(streamed(*frames(name)), "converse_stream")
    deltas = [one["contentBlockDelta"]["delta"] for one in theirs if "contentBlockDelta" in one]
    starts = [one["contentBlockStart"]["start"]["toolUse"] for one in theirs if "contentBlockStart" in one]
    ours = await folded(streamed(*frames(name)))
    assert (words(ours)[0] or "") == "".join(delta.get("text", "") for delta in deltas)
    thoughts = "".join(delta.get("reasoningContent", {}).get("text", "") for delta in deltas)
    assert (ours.choices[0].message.reasoning_content or "") == thoughts
    assert [call[:2] for call in calls_of(ours)] == [(start["toolUseId"], start["name"]) for start in starts]


@pytest.mark.parametrize("name", ERRORS)
async def test_botocore_raises_for_every_error(name: str) -> None:
    entry = document("errors")[name]
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        await asked_by_botocore(failure(name), "converse")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == entry["status"]
    assert caught.value.response["Error"]["Code"] == entry["headers"]["x-amzn-errortype"].split(":")[0]


async def test_botocore_raises_for_an_exception_within_a_stream() -> None:
    with pytest.raises(botocore.exceptions.EventStreamError, match="throttlingException"):
        await asked_by_botocore(
            streamed(*frames("text")[:2], exception("throttlingException", message="slow")), "converse_stream"
        )


# Answers and streams -------------------------------------------------------------------------------------------------


async def test_text_of_all_blocks_is_the_content() -> None:
    for answer in await both_ways("text"):
        assert words(answer) == ("Four. That is two and two.", "stop") and len(answer.choices) == 1
        usage = answer.usage
        assert usage and (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (25, 15, 40)
        assert answer.service_tier is UNSET


async def test_parallel_calls_have_their_arguments_as_text() -> None:
    for answer in await both_ways("tools"):
        assert words(answer) == ("I will look at both ports.", "tool_calls")
        assert calls_of(answer) == [
            ("tooluse_kZJMlvQmRJ6eAyJE5GIl7Q", "tide", {"port": "Brest", "at": {"hour": 6}}),
            ("tooluse_Dover3HcYzB8nJ5qM1tXkA", "tide", {"port": "Dover — west"}),
            ("tooluse_Clock9DfGhJ2kL4mN6pQrs", "clock", {}),
        ]
    whole = (await answer_to(Reply.json(document("tools")))).choices[0].message.tool_calls or []
    assert whole[0].function and whole[0].function.arguments == '{"port":"Brest","at":{"hour":6}}'


async def test_fragments_of_calls_are_numbered_among_the_calls() -> None:
    chunks = await chunks_of(streamed(*frames("tools")))
    fragments = [call for chunk in chunks for part in chunk.choices for call in part.delta.tool_calls or ()]
    assert [call.index for call in fragments] == [0, 0, 0, 1, 1, 2, 2]
    assert [call.function and call.function.arguments for call in fragments][-1] == "{}"  # a call without arguments


async def test_thinking_is_shown_and_can_be_sent_back() -> None:
    blocks = document("thinking")["output"]["message"]["content"]
    text = blocks[0]["reasoningContent"]["reasoningText"]
    for answer in await both_ways("thinking"):
        message = answer.choices[0].message
        assert message.reasoning_content == "Two numbers. Their sum is asked." and words(answer) == ("Four.", "stop")
        assert message.thinking_blocks is not UNSET
        assert msgspec.json.decode(message.thinking_blocks) == [
            {"type": "thinking", "thinking": text["text"], "signature": text["signature"]},
            {"type": "redacted_thinking", "data": blocks[1]["reasoningContent"]["redactedContent"]},
        ]


async def test_thinking_is_sent_back_unchanged() -> None:
    for answer in await both_ways("thinking"):
        said = msgspec.json.decode(msgspec.json.encode(answer.choices[0].message))
        history = [{"role": "user", "content": "a"}, said, {"role": "user", "content": "b"}]
        async with FakeUpstream(converse) as fake, provider(fake) as subject:
            await subject.chat(asking(messages=history), target())
            sent = fake.seen[0].json["messages"][1]["content"]
        assert sent == document("thinking")["output"]["message"]["content"]


async def test_cached_tokens_are_part_of_the_prompt_and_cache_writes_are_split_by_lifetime() -> None:
    whole, stream = [answer.usage for answer in await both_ways("cache")]
    assert whole and whole == stream
    details = whole.prompt_tokens_details
    assert whole.prompt_tokens == 21 + 556 + 18890 and whole.completion_tokens == 3
    assert (details.cached_tokens, details.cache_write_tokens) == (18890, 556)
    lives = details.cache_write_tokens_details
    assert lives is not UNSET and (lives.ttl_30m_tokens, lives.ttl_12h_tokens) == (456, 100)


async def test_service_tier_is_the_one_that_was_used() -> None:
    assert [answer.service_tier for answer in await both_ways("cache")] == ["priority"] * 2
    assert [answer.service_tier for answer in await both_ways("cache", service_tier="flex")] == ["priority"] * 2
    assert [answer.service_tier for answer in await both_ways("text", service_tier="scale")] == ["default"] * 2
    reserved = {**document("text"), "serviceTier": {"type": "reserved"}}
    assert (await answer_to(Reply.json(reserved))).service_tier == "scale"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("something_new", "something_new"),  # for the gateway to judge
    ],
)
async def test_stop_reasons_are_translated(theirs: str, ours: str) -> None:
    assert (await answer_to(Reply.json({**document("text"), "stopReason": theirs}))).choices[0].finish_reason == ours
    told = streamed(*frames("text")[:-2], event("messageStop", stopReason=theirs), frames("text")[-1])
    assert (await folded(told)).choices[0].finish_reason == ours


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
async def test_malformed_output_is_an_error(reason: str) -> None:
    with pytest.raises(UpstreamInvalidResponse) as caught:
        await answer_to(Reply.json({**document("text"), "stopReason": reason}))
    assert caught.value.status == 502 and caught.value.retryable
    with pytest.raises(UpstreamInvalidResponse):
        await chunks_of(streamed(*frames("text")[:-2], event("messageStop", stopReason=reason), frames("text")[-1]))


async def test_guardrail_message_is_the_answer() -> None:
    for answer in await both_ways("guardrail"):
        assert words(answer) == ("Sorry, the model cannot answer this question.", "content_filter")


@pytest.mark.parametrize(
    "usage",
    [
        {"inputTokens": -1},
        {"inputTokens": "9"},
        {"inputTokens": 10**18},
        {"outputTokens": "9"},
        {"cacheReadInputTokens": -1},
        {"cacheWriteInputTokens": 1.5},
        {"inputTokens": True},
    ],
)
async def test_impossible_usage_is_ignored(usage: dict[str, Any]) -> None:
    whole = document("text")
    whole["usage"].update(usage)
    answer = await answer_to(Reply.json(whole))
    assert answer.usage is None and words(answer)[1] == "stop"
    last = event("metadata", usage=whole["usage"], metrics={})
    assert (await folded(streamed(*frames("text")[:-1], last))).usage is None


@pytest.mark.parametrize("usage", [None, "many", [], {}])
async def test_missing_usage_is_none(usage: Any) -> None:
    assert (await answer_to(Reply.json({**document("text"), "usage": usage}))).usage is None
    assert (await folded(streamed(*frames("text")[:-1], event("metadata", usage=usage)))).usage is None


async def test_unknown_blocks_and_events_are_skipped() -> None:
    foreign = {"toolUseId": "srv_1", "name": "search", "type": "server_tool_use"}
    strange = [
        event("contentBlockStart", start={"toolUse": foreign}, contentBlockIndex=9),
        event("contentBlockDelta", delta={"toolUse": {"input": "{}"}}, contentBlockIndex=9),
        event("contentBlockStop", contentBlockIndex=9),
        event("contentBlockStart", start={"image": {"format": "png"}}, contentBlockIndex=8),
        event("contentBlockDelta", delta={"citation": {"title": "x"}}, contentBlockIndex=8),
        event("somethingNew", depth=[1, 2]),
        frame({}, b""),
    ]
    start, *rest = frames("text")
    answer = await folded(streamed(start, *strange, *rest))
    assert words(answer) == ("Four. That is two and two.", "stop")
    whole = document("text")
    cited = {"citationsContent": {"content": [{"text": " Truly."}], "citations": []}}
    whole["output"]["message"]["content"] += [
        {"toolUse": {**foreign, "input": {}}},
        {"image": {"format": "png"}},
        cited,
    ]
    assert words(await answer_to(Reply.json(whole))) == ("Four. That is two and two. Truly.", "stop")


async def test_error_object_inside_a_successful_answer_is_raised() -> None:
    with pytest.raises(UpstreamRateLimited):
        await answer_to(Reply.json({"error": {"message": "slow", "code": 429}}))
    for body in (Reply(body=b"{}"), Reply(body=b"\xff"), Reply(body=b"[" * 9000), Reply.json({"output": {}})):
        with pytest.raises(UpstreamInvalidResponse):
            await answer_to(body)


# Ends that are none --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(len(frames("text"))))
async def test_stream_without_its_metadata_is_truncated(kept: int) -> None:
    """Even one that has shown its finish."""
    with pytest.raises(UpstreamTruncated):
        await chunks_of(streamed(*frames("text")[:kept]))


async def test_metadata_without_a_finish_is_truncated() -> None:
    with pytest.raises(UpstreamTruncated):
        await chunks_of(streamed(frames("text")[0], frames("text")[-1]))


async def test_damaged_stream_returns_the_earlier_chunks_and_then_fails() -> None:
    damaged = bytearray(b"".join(frames("text")))
    damaged[len(frames("text")[0]) + len(frames("text")[1]) + 60] ^= 4
    chunks: list[ChatChunk] = []
    async with FakeUpstream(converse) as fake, provider(fake) as subject:
        fake.enqueue(streamed(*(bytes(damaged[at : at + 50]) for at in range(0, len(damaged), 50))))
        with pytest.raises(UpstreamTruncated):
            async for chunk in subject.stream_chat(ask(), target()):
                chunks.append(chunk)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["Four"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("internalServerException", UpstreamError),
        ("modelStreamErrorException", UpstreamError),
        ("validationException", UpstreamRejected),
        ("throttlingException", UpstreamRateLimited),
        ("serviceUnavailableException", UpstreamError),
        ("modelTimeoutException", UpstreamTimeout),
        ("somethingNewException", UpstreamError),
    ],
)
async def test_exception_inside_a_stream_is_raised_after_the_earlier_chunks(
    kind: str, error: type[GatewayError]
) -> None:
    chunks: list[ChatChunk] = []
    async with FakeUpstream(converse) as fake, provider(fake) as subject:
        fake.enqueue(streamed(*frames("text")[:2], exception(kind, message="Something"), *frames("text")[2:]))
        with pytest.raises(error) as caught:
            async for chunk in subject.stream_chat(ask(), target()):
                chunks.append(chunk)
    assert type(caught.value) is error and len(chunks) == 1


async def test_context_overflow_and_filter_inside_a_stream_are_caller_errors() -> None:
    for message, kind in (
        ("Input is too long for requested model.", ContextLengthExceeded),
        ("The generated text has been blocked by our content filters.", ContentFiltered),
    ):
        with pytest.raises(kind):
            await chunks_of(streamed(frames("text")[0], exception("validationException", message=message)))


async def test_error_frame_is_raised() -> None:
    headers = {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "unknown"}
    with pytest.raises(UpstreamError):
        await chunks_of(streamed(frames("text")[0], frame(headers, b"")))


@pytest.mark.parametrize("payload", [b"", b"{", b"null", b"[]", b'{"delta":7}', b"\xff", b"[" * 9000])
async def test_event_of_another_dialect_is_invalid(payload: bytes) -> None:
    headers = {":message-type": "event", ":event-type": "contentBlockDelta"}
    with pytest.raises(UpstreamInvalidResponse):
        await chunks_of(streamed(frames("text")[0], frame(headers, payload)))


async def test_document_instead_of_a_stream_is_one_chunk() -> None:
    whole = await answer_to(Reply.json(document("text")))
    (chunk,) = await chunks_of(Reply.json(document("text")))
    assert (chunk.choices[0].delta.content, chunk.usage) == (whole.choices[0].message.content, whole.usage)


# Errors ------------------------------------------------------------------------------------------------------------

EXPECTED: dict[str, tuple[type[GatewayError], int, str]] = {
    "validation": (UpstreamRejected, 400, "invalid_value"),
    "too_long": (ContextLengthExceeded, 400, "context_length_exceeded"),
    "filtered": (ContentFiltered, 400, "content_filter"),
    "access_denied": (UpstreamAuthError, 502, "upstream_auth_error"),
    "invalid_signature": (UpstreamAuthError, 502, "upstream_auth_error"),
    "unrecognized_client": (UpstreamAuthError, 502, "upstream_auth_error"),
    "expired_token": (UpstreamAuthError, 502, "upstream_auth_error"),
    "not_found": (UpstreamError, 502, "upstream_error"),
    "model_timeout": (UpstreamTimeout, 504, "upstream_timeout"),
    "model_error": (UpstreamError, 502, "upstream_error"),
    "throttling": (UpstreamRateLimited, 429, "slow_down"),
    "not_ready": (UpstreamRateLimited, 429, "slow_down"),
    "quota": (UpstreamRateLimited, 429, "slow_down"),
    "internal": (UpstreamError, 502, "upstream_error"),
    "unavailable": (UpstreamError, 502, "upstream_error"),
}


def test_every_error_of_the_fixtures_is_expected() -> None:
    assert sorted(EXPECTED) == ERRORS


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", ERRORS)
async def test_errors_are_distinguished_by_their_names(name: str, streaming: bool) -> None:
    kind, status, code = EXPECTED[name]
    with pytest.raises(GatewayError) as caught:
        await (chunks_of(failure(name)) if streaming else answer_to(failure(name)))
    assert (type(caught.value), caught.value.status, caught.value.code) == (kind, status, code)
    if kind in {UpstreamAuthError, UpstreamError}:
        assert document("errors")[name]["body"]["message"] not in f"{caught.value} {caught.value.detail}"


@pytest.mark.parametrize(
    "body",
    [
        {"__type": "ThrottlingException", "message": "slow"},
        {"__type": "com.amazon.coral.service#ThrottlingException", "Message": "slow"},
        {"__type": "com.amazonaws.bedrock#ThrottlingException:http://internal.amazon.com/", "message": None},
    ],
)
async def test_name_of_an_error_is_read_from_its_body(body: dict[str, Any]) -> None:
    with pytest.raises(UpstreamRateLimited):
        await answer_to(Reply.json(body, status=400))


async def test_error_without_a_name_is_classified_by_its_status() -> None:
    with pytest.raises(UpstreamAuthError):
        await answer_to(Reply.json({"Message": "Missing Authentication Token"}, status=403))
    with pytest.raises(UpstreamRejected, match="who knows"):
        await answer_to(Reply(status=400, body=b"who knows"))


async def test_requested_retry_wait_is_kept() -> None:
    with pytest.raises(UpstreamRateLimited) as caught:
        await answer_to(msgspec.structs.replace(failure("throttling"), headers={"retry-after": "7"}))
    assert caught.value.retry_after == 7


# The whole of it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [keys(token=True), {"api_key": Secret("literal", "bedrock-api-key-TESTS")}],
    ids=["signed", "bearer"],
)
def test_provider_conforms(options: dict[str, Any]) -> None:
    passed = check_provider(
        BedrockProvider,
        options={"region": REGION, "base_url": "{upstream}", **options},
        upstream=FakeUpstream(converse),
        endings={"length": partial(converse, ended="max_tokens")},
    )
    assert "finish_reasons_are_told" in passed
    assert "cancelling_closes_the_upstream" in passed and "frames_may_be_split_anywhere" in passed


async def test_closing_a_stream_closes_its_socket() -> None:
    async with FakeUpstream(converse) as fake, provider(fake) as subject:
        fake.enqueue(msgspec.structs.replace(streamed(*frames("text")[:3]), end="silence"))
        stream = cast("AsyncGenerator[ChatChunk, None]", subject.stream_chat(ask(), target()))
        await anext(stream)
        async with at_once():
            await stream.aclose()
            seen = await fake.wait_ended()
    assert seen.outcome == "left"


async def test_connection_is_used_again_after_a_whole_stream() -> None:
    async with FakeUpstream(converse) as fake, provider(fake) as subject:
        for _ in range(3):
            assert [chunk async for chunk in subject.stream_chat(ask(), target())]
            assert (await fake.wait_ended()).outcome == "answered"


@pytest.mark.parametrize("name", ["validation", "access_denied"])
async def test_no_credential_and_no_address_is_in_an_error_or_a_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeUpstream(converse) as fake, provider(fake, **keys(token=True)) as subject:
        leak = f"credential {KEY_ID} {SECRET} with {TOKEN} at {fake.url}"
        headers = document("errors")[name]["headers"]
        status = document("errors")[name]["status"]
        fake.enqueue(*[Reply.json({"message": leak}, status=status, headers=headers)] * 2)
        fake.enqueue(streamed(frames("text")[0], exception("validationException", message=leak)))
        found = []
        for call in (subject.chat, *[subject.stream_chat] * 2):
            with pytest.raises(GatewayError) as caught:
                answer = call(ask(), target())
                await (answer if asyncio.iscoroutine(answer) else anext(cast("AsyncGenerator[ChatChunk]", answer)))
            error = caught.value
            found.append(f"{error!r} {error} {error.detail} {error.param} {error.body().decode()}")
        authority = fake.url.removeprefix("http://")
    shown = " ".join([*found, caplog.text])
    assert not any(text in shown for text in (KEY_ID, SECRET, TOKEN, authority))

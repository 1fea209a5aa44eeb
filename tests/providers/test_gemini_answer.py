"""What the `gemini` provider makes of answers: whole, streamed, cut, blocked, refused, wrong."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET

from gateway import ChatChunk, CompletionUsage, Secret, Target, Timeouts
from gateway.errors import (
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
from gateway.testing import FakeUpstream, Reply, check_provider
from gateway_providers.gemini import GeminiProvider
from gateway_providers.gemini.finish import FAILED, FILTERED, VAGUE
from gateway_providers.gemini.usage import read_usage
from tests.providers.endings import ended
from tests.providers.gemini_upstream import (
    BLOCKED,
    CALL_STREAM,
    CALLS,
    CANDIDATES,
    HELLO,
    KEY,
    LOGPROBS,
    PICTURE,
    PNG,
    SIGNATURE,
    SOUND,
    STREAM,
    TARGET,
    THOUGHT,
    answer_to,
    candidate,
    chat_request,
    chunks_of,
    document,
    gemini,
    google_error,
    part,
    provider,
    sse,
    usage,
)


def test_gemini_conforms() -> None:
    passed = check_provider(
        GeminiProvider,
        options={"base_url": "{upstream}/v1beta", "api_key": Secret("literal", KEY)},
        upstream=FakeUpstream(gemini),
        endings={"length": ended(gemini, "STOP", "MAX_TOKENS"), "content_filter": ended(gemini, "STOP", "SAFETY")},
        target=Target("subject", "gemini-2.5-flash", "public-name", Timeouts(connect=2.0)),
    )
    cases = {"cut_stream_never_looks_whole", "cancelling_closes_the_upstream", "finish_reasons_are_told"}
    assert cases <= set(passed)


# Whole answers -----------------------------------------------------------------------------------------------------


async def test_text_is_the_content() -> None:
    answer = await answer_to(HELLO)
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason, choice.index) == ("Hello there.", "stop", 0)
    assert answer.usage is not None and answer.usage.total_tokens == 10


async def test_thoughts_are_reasoning_and_never_content() -> None:
    message = (await answer_to(THOUGHT)).choices[0].message
    assert (message.content, message.reasoning_content) == ("Four.", "**Adding**\n\nTwo and two.")


async def test_parallel_calls_have_ids_arguments_as_text_and_their_signature() -> None:
    choice = (await answer_to(CALLS)).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    calls = choice.message.tool_calls
    assert calls and [call.function and call.function.name for call in calls] == ["tide", "wind", "moon"]
    assert [call.function and call.function.arguments for call in calls] == [
        '{"port":"Brest","days":2}',
        '{"port":"Brest"}',
        "{}",
    ]
    assert calls[1].id == "fc-7" and calls[0].id.startswith("call_") and calls[0].id != calls[2].id
    assert msgspec.json.decode(cast("Any", calls[0].extra_content)) == {"google": {"thought_signature": SIGNATURE}}
    assert calls[1].extra_content is UNSET


async def test_pretty_printed_arguments_are_compacted() -> None:
    pretty = msgspec.json.format(msgspec.json.encode(CALLS), indent=2)
    answer = await answer_to(Reply(body=pretty, headers={"Content-Type": "application/json"}))
    call = (answer.choices[0].message.tool_calls or [])[0]
    assert call.function and call.function.arguments == '{"port":"Brest","days":2}'


async def test_several_candidates_are_several_choices() -> None:
    answer = await answer_to(CANDIDATES, chat_request(n=2))
    found = [(choice.index, choice.message.content, choice.finish_reason) for choice in answer.choices]
    assert found == [(0, "One.", "stop"), (1, "Two.", "length")]


async def test_image_of_a_chat_answer_is_an_extension_of_the_message() -> None:
    message = (await answer_to(PICTURE)).choices[0].message
    assert message.content == "Here it is."
    url = f"data:image/png;base64,{PNG}"
    assert msgspec.json.decode(cast("Any", message.images)) == [
        {"type": "image_url", "image_url": {"url": url}, "index": 0}
    ]


@pytest.mark.parametrize(("format", "head"), [("pcm16", b""), ("wav", b"RIFF")])
async def test_audio_answer_is_the_audio_of_the_message(format: str, head: bytes) -> None:
    asked = chat_request(modalities=["text", "audio"], audio={"voice": "alloy", "format": format})
    answer = await answer_to(SOUND, asked)
    audio = msgspec.json.decode(cast("Any", answer.choices[0].message.audio))
    data = base64.b64decode(audio["data"])
    assert data.startswith(head) and data.endswith(b"\0\0\1\0\2\0\3\0") and len(data) == 8 + (44 if head else 0)
    assert audio["id"] and audio["expires_at"] and audio["transcript"] == ""
    assert answer.usage is not None and answer.usage.completion_tokens_details.audio_tokens == 30


async def test_log_probabilities_have_openais_shape() -> None:
    found = (await answer_to(LOGPROBS, chat_request(logprobs=True, top_logprobs=2))).choices[0].logprobs
    first = {"token": "Hé", "logprob": -0.1, "bytes": [72, 195, 169]}
    second = {"token": "Ho", "logprob": -2.5, "bytes": [72, 111]}
    assert found == {"content": [{**first, "top_logprobs": [first, second]}], "refusal": None}


async def test_blocked_prompt_is_a_choice_with_a_refusal() -> None:
    answer = await answer_to(BLOCKED)
    choice = answer.choices[0]
    assert choice.finish_reason == "content_filter" and choice.message.content is None
    assert choice.message.refusal == "The model provider blocked this prompt (prohibited content)."
    assert answer.usage is not None and answer.usage.prompt_tokens == 9


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"null",
        b"4",
        b'"x"',
        b"{",
        b"\xff",
        b'{"candidates":{}}',
        b"[[[[",
        b'{"candidates":[{"content":{"parts":[]}}]}',
    ],
)
async def test_unusable_answer_is_an_invalid_response(body: bytes) -> None:
    reply = Reply(body=body, headers={"Content-Type": "application/json"})
    with pytest.raises(UpstreamInvalidResponse):
        await answer_to(reply)
    with pytest.raises((UpstreamInvalidResponse, UpstreamTruncated)):
        await chunks_of(reply)


# Streams -----------------------------------------------------------------------------------------------------------


def spelled(chunks: list[ChatChunk], name: str) -> str:
    return "".join(getattr(one.delta, name) or "" for chunk in chunks for one in chunk.choices)


def last_usage(chunks: list[ChatChunk]) -> CompletionUsage | None:
    return next((chunk.usage for chunk in reversed(chunks) if chunk.usage is not UNSET), None)


async def test_stream_has_the_whole_text_and_its_last_usage_counts() -> None:
    chunks = await chunks_of(*STREAM)
    assert spelled(chunks, "content") == "Two and two." and spelled(chunks, "reasoning_content") == "**Plan**"
    assert [one.finish_reason for chunk in chunks for one in chunk.choices if one.finish_reason] == ["stop"]
    found = last_usage(chunks)
    assert found is not None and (found.prompt_tokens, found.completion_tokens) == (12, 19)
    assert found.completion_tokens_details.reasoning_tokens == 14


async def test_streamed_calls_are_numbered_whole_and_signed() -> None:
    chunks = await chunks_of(*CALL_STREAM)
    calls = [call for chunk in chunks for one in chunk.choices for call in one.delta.tool_calls or []]
    assert [(call.index, call.type, call.function and call.function.name) for call in calls] == [
        (0, "function", "tide"),
        (1, "function", "wind"),
    ]
    assert calls[0].id and calls[1].id and calls[0].id != calls[1].id
    assert msgspec.json.decode(cast("Any", calls[0].extra_content)) == {"google": {"thought_signature": SIGNATURE}}
    assert [one.finish_reason for chunk in chunks for one in chunk.choices if one.finish_reason] == ["tool_calls"]


async def test_streamed_candidates_end_independently() -> None:
    frames = [
        document(candidate(part(text="a")), candidate(part(text="b"), index=1)),
        document(candidate(part(text="A"), finish="STOP")),
        document(candidate(part(text="B"), finish="MAX_TOKENS", index=1), usage=usage(3, 4)),
    ]
    chunks = await chunks_of(*frames, request=chat_request(n=2, stream=True))
    texts = {
        index: "".join(one.delta.content or "" for chunk in chunks for one in chunk.choices if one.index == index)
        for index in (0, 1)
    }
    assert texts == {0: "aA", 1: "bB"}
    with pytest.raises(UpstreamTruncated):
        await chunks_of(*frames[:2], request=chat_request(n=2, stream=True))


async def test_stream_waits_for_a_candidate_that_begins_after_another_ended() -> None:
    frames = [
        document(candidate(part(text="a"), finish="STOP"), usage=usage(3, 1)),
        document(candidate(part(text="b"), finish="STOP", index=1), usage=usage(3, 2)),
    ]
    apart = msgspec.structs.replace(sse(*frames), interval=0.02)  # frames that arrive together are read together
    chunks = await chunks_of(apart, request=chat_request(n=2, stream=True))
    assert spelled(chunks, "content") == "ab"
    found = last_usage(chunks)
    assert found is not None and found.completion_tokens == 2


async def test_usage_that_comes_after_the_finish_is_not_lost() -> None:
    chunks = await chunks_of(document(candidate(part(text="Hi"), finish="STOP")), document(usage=usage(3, 1)))
    found = last_usage(chunks)
    assert found is not None and found.total_tokens == 4


async def test_count_of_the_prompt_alone_comes_with_the_content_of_its_frame() -> None:
    frames = [document(candidate(part(text="Hi")), usage=usage(3)), *STREAM[-1:]]
    chunks = await chunks_of(*frames)
    first = chunks[0].usage
    assert first and (first.prompt_tokens, first.completion_tokens) == (3, 0)
    assert last_usage(chunks) is not None


async def test_blocked_prompt_streams_a_refusal() -> None:
    chunks = await chunks_of(BLOCKED)
    assert spelled(chunks, "refusal").startswith("The model provider blocked this prompt")
    assert chunks[-1].choices[0].finish_reason == "content_filter"


async def test_streamed_image_and_sound_are_deltas() -> None:
    chunks = await chunks_of(PICTURE)
    images = [one.delta.images for chunk in chunks for one in chunk.choices if one.delta.images is not UNSET]
    assert msgspec.json.decode(images[0])[0]["image_url"]["url"].endswith(PNG)
    half = document(candidate(*SOUND["candidates"][0]["content"]["parts"]))
    asked = chat_request(stream=True, modalities=["text", "audio"], audio={"voice": "alloy", "format": "pcm16"})
    chunks = await chunks_of(half, SOUND, request=asked)
    sounds = [msgspec.json.decode(one.delta.audio) for chunk in chunks for one in chunk.choices if one.delta.audio]
    assert [sound["data"] for sound in sounds] == ["AAABAAIAAwA=", "AAABAAIAAwA="]
    assert sounds[0]["id"] == sounds[1]["id"] and "expires_at" in sounds[0] and "expires_at" not in sounds[1]


async def test_whole_answer_to_a_streaming_call_is_read() -> None:
    chunks = await chunks_of(Reply.json(THOUGHT))
    assert spelled(chunks, "content") == "Four." and chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_stream_without_a_finish_reason_is_truncated(count: int) -> None:
    with pytest.raises(UpstreamTruncated):
        await chunks_of(sse(*STREAM[:count]))


@pytest.mark.parametrize("wrap", [False, True])
async def test_error_inside_a_stream_is_raised_after_the_earlier_chunks(wrap: bool) -> None:
    error: Any = google_error(503, "UNAVAILABLE", "The model is overloaded. Please try again later.")
    seen: list[ChatChunk] = []
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(sse(STREAM[1], [error] if wrap else error))
        with pytest.raises(UpstreamOverloaded):
            async for chunk in subject.stream_chat(chat_request(stream=True), TARGET):
                seen.append(chunk)
    assert spelled(seen, "content") == "Two and "


async def test_closing_a_stream_closes_its_socket() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(msgspec.structs.replace(sse(*STREAM[:2]), end="silence"))
        stream = cast("AsyncGenerator[ChatChunk, None]", subject.stream_chat(chat_request(stream=True), TARGET))
        await anext(stream)
        await stream.aclose()
        assert (await fake.wait_ended()).outcome == "left"


async def test_cancelled_call_closes_its_socket() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.silence())
        task = asyncio.ensure_future(subject.chat(chat_request(), TARGET))
        await fake.wait_started()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert (await fake.wait_ended()).outcome == "left"


# Finish reasons ----------------------------------------------------------------------------------------------------

TEXT = part(text="Some text.")
CALL = part(functionCall={"name": "f", "args": {}})
ALL_REASONS = sorted({"STOP", "MAX_TOKENS", "NO_IMAGE"} | FILTERED | FAILED | VAGUE)


def expected(reason: str, *, spoke: bool) -> str | None:
    """As docs/providers/gemini.md, "Finish reasons", says; None where the answer is an error."""
    if reason in {"STOP", "NO_IMAGE"}:
        return "stop"
    if reason == "MAX_TOKENS":
        return "length"
    if reason in FILTERED:
        return "content_filter"
    if reason in VAGUE:
        return "stop" if spoke else "content_filter"
    return "stop" if spoke else None


@pytest.mark.parametrize("reason", ALL_REASONS)
async def test_every_finish_reason_is_translated(reason: str) -> None:
    for parts in ([TEXT], []):
        answer = document(candidate(*parts, finish=reason), usage=usage(3, len(parts)))
        wanted = expected(reason, spoke=bool(parts))
        if wanted is None:
            with pytest.raises(UpstreamInvalidResponse):
                await answer_to(answer)
            with pytest.raises(UpstreamInvalidResponse):
                await chunks_of(answer)
            continue
        assert (await answer_to(answer)).choices[0].finish_reason == wanted
        assert (await chunks_of(answer))[-1].choices[0].finish_reason == wanted
    called = document(candidate(CALL, finish=reason))
    assert (await answer_to(called)).choices[0].finish_reason == "tool_calls"
    assert (await chunks_of(called))[-1].choices[0].finish_reason == "tool_calls"


async def test_unknown_finish_reason_ends_an_answer_but_not_an_empty_one() -> None:
    assert (await answer_to(document(candidate(TEXT, finish="NEXT_YEARS")))).choices[0].finish_reason == "stop"
    with pytest.raises(UpstreamInvalidResponse):
        await answer_to(document(candidate(finish="NEXT_YEARS")))


async def test_one_usable_candidate_makes_the_answer_valid() -> None:
    answer = await answer_to(document(candidate(TEXT, finish="STOP"), candidate(finish="MALFORMED_RESPONSE", index=1)))
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]


# Usage -------------------------------------------------------------------------------------------------------------


def test_every_token_count_has_its_usage_field() -> None:
    found = read_usage(
        {
            "promptTokenCount": 100,
            "toolUsePromptTokenCount": 20,
            "cachedContentTokenCount": 60,
            "candidatesTokenCount": 30,
            "thoughtsTokenCount": 50,
            "totalTokenCount": 200,
            "promptTokensDetails": [
                {"modality": "TEXT", "tokenCount": 70},
                {"modality": "IMAGE", "tokenCount": 20},
                {"modality": "AUDIO", "tokenCount": 10},
            ],
            "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 25}],
        }
    )
    assert found is not None
    assert (found.prompt_tokens, found.completion_tokens, found.total_tokens) == (120, 80, 200)
    inside, outside = found.prompt_tokens_details, found.completion_tokens_details
    assert (inside.cached_tokens, inside.audio_tokens, inside.image_tokens, inside.text_tokens) == (60, 10, 20, 70)
    assert (outside.reasoning_tokens, outside.audio_tokens) == (50, 25)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        [],
        "many",
        {},
        {"promptTokenCount": -5, "candidatesTokenCount": 3},
        {"promptTokenCount": "7", "candidatesTokenCount": 3},
        {"promptTokenCount": True},
        {"promptTokenCount": 10**18},
        {"promptTokenCount": 5, "thoughtsTokenCount": -4, "candidatesTokenCount": 10},
    ],
)
def test_impossible_usage_is_none(metadata: Any) -> None:
    assert read_usage(metadata) is None


# Errors ------------------------------------------------------------------------------------------------------------

QUOTA = (
    "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
    "head to: https://ai.google.dev/gemini-api/docs/rate-limits. Please retry in 17.2s."
)
LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, google_error(400, "INVALID_ARGUMENT", "Invalid value at 'contents[0]'"), UpstreamRejected),
        (400, google_error(400, "FAILED_PRECONDITION", "User location is not supported."), UpstreamRejected),
        (400, google_error(400, "INVALID_ARGUMENT", LONG), ContextLengthExceeded),
        (
            400,
            google_error(400, "INVALID_ARGUMENT", "API key not valid.", reason="API_KEY_INVALID"),
            UpstreamAuthError,
        ),
        (401, google_error(401, "UNAUTHENTICATED", reason="ACCESS_TOKEN_EXPIRED"), UpstreamAuthError),
        (402, google_error(402, "RESOURCE_EXHAUSTED", "Prepaid credit depleted."), UpstreamOverloaded),
        (403, google_error(403, "PERMISSION_DENIED", reason="API_KEY_SERVICE_BLOCKED"), UpstreamAuthError),
        (404, google_error(404, "NOT_FOUND", "models/x is not found"), UpstreamError),
        (413, google_error(413, "INVALID_ARGUMENT"), RequestTooLarge),
        (429, google_error(429, "RESOURCE_EXHAUSTED", QUOTA, delay="17s"), UpstreamRateLimited),
        (499, google_error(499, "CANCELLED"), UpstreamError),
        (500, google_error(500, "INTERNAL"), UpstreamError),
        (503, google_error(503, "UNAVAILABLE", "The model is overloaded."), UpstreamOverloaded),
        (504, google_error(504, "DEADLINE_EXCEEDED"), UpstreamTimeout),
    ],
)
async def test_every_error_status_has_its_error_type(
    status: int, error: Any, kind: type[GatewayError], wrap: bool
) -> None:
    body = [error] if wrap else error
    with pytest.raises(kind) as caught:
        await answer_to(Reply.json(body, status=status))
    assert type(caught.value) is kind
    if status != 400:
        assert caught.value.status not in {401, 403}
    with pytest.raises(kind):
        await chunks_of(Reply.json(body, status=status))
    if status != 413:  # the same within an answer of status 200
        with pytest.raises(GatewayError) as inside:
            await answer_to(Reply.json(body))
        assert type(inside.value) is kind


@pytest.mark.parametrize(
    ("delay", "wait"), [("17s", 17.0), ("0.5s", 0.5), ("", 3.0), ("soon", 3.0), ("999999999s", 3.0)]
)
async def test_retry_wait_is_read_from_the_details_or_else_from_the_header(delay: str, wait: float) -> None:
    error = google_error(429, "RESOURCE_EXHAUSTED", QUOTA, delay=delay)
    with pytest.raises(UpstreamRateLimited) as caught:
        await answer_to(Reply.json(error, status=429, headers={"Retry-After": "3", "X-Request-Id": "req-7"}))
    assert caught.value.retry_after == wait
    assert caught.value.upstream_request_id == "req-7"


@pytest.mark.parametrize(
    "details", [None, 7, "x", {}, [None, 3, {"reason": 4, "retryDelay": 5}], [{"retryDelay": "-3s"}]]
)
async def test_invalid_error_details_are_ignored(details: Any) -> None:
    error = {"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": details}}
    with pytest.raises(UpstreamRateLimited) as caught:
        await answer_to(Reply.json(error, status=429))
    assert caught.value.retry_after == 1.0


async def test_no_error_log_or_repr_shows_a_credential(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeUpstream() as fake, provider(fake) as subject:
        leak = f"API key {KEY} for {fake.url} is bad"
        errors = [
            google_error(status, "X", leak, reason=reason)
            for status in (400, 401, 403, 429, 500)
            for reason in ("", "API_KEY_INVALID", leak)
        ]
        for error in errors:
            for status in (error["error"]["code"], 200):
                fake.enqueue(Reply.json(error, status=status))
                with pytest.raises(GatewayError) as caught:
                    await subject.chat(chat_request(), TARGET)
                shown = f"{caught.value} {caught.value.detail} {caught.value.body()!r} {caught.value!r}"
                assert KEY not in shown and "127.0.0.1" not in shown, (status, shown)
        assert KEY not in f"{subject!r} {subject.options!r} {subject._credentials!r}"
    assert KEY not in caplog.text

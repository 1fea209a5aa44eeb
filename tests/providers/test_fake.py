"""The `fake` provider: answers that can be foretold, and failures on demand."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import msgspec
import pytest
from msgspec import UNSET

from gateway import ChatChunk, Target, Upstream
from gateway.errors import UpstreamOverloaded, UpstreamRateLimited, UpstreamTruncated
from gateway.testing import ask, collect
from gateway_providers.fake import FakeProvider
from tests.polling import at_once, turns

TARGET = Target("fake", "m")


def scripted(script: dict[str, Any]) -> FakeProvider:
    return FakeProvider(msgspec.convert({"models": {"m": script}}, FakeProvider.Options), Upstream())


async def chunks_of(script: dict[str, Any], **fields: Any) -> list[ChatChunk]:
    return [chunk async for chunk in scripted(script).stream_chat(ask("one two", fields=fields), TARGET)]


def text_of(chunks: list[ChatChunk]) -> list[str]:
    return [part.delta.content for chunk in chunks for part in chunk.choices if isinstance(part.delta.content, str)]


def test_default_answer_repeats_the_question_and_counts_words() -> None:
    answer = collect(FakeProvider, ask("how are you"))
    assert answer.choices[0].message.content == "You said: how are you"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 5, 8)
    assert collect(FakeProvider, ask("how are you")) == answer


def test_token_limit_stop_texts_and_choice_count_are_honoured() -> None:
    short = collect(FakeProvider, ask("a b c", fields={"max_tokens": 3}))
    assert (short.choices[0].message.content, short.choices[0].finish_reason) == ("You said: a ", "length")
    stopped = collect(FakeProvider, ask("a b c", fields={"stop": ["b"]}))
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("You said: a ", "stop")
    assert [choice.index for choice in collect(FakeProvider, ask("a", fields={"n": 3})).choices] == [0, 1, 2]


def test_json_schema_gets_a_matching_value() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        },
    }
    wanted = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    content = collect(FakeProvider, ask(fields=wanted)).choices[0].message.content
    assert msgspec.json.decode(content or "") == {"name": "text", "age": 1, "kind": "a", "tags": ["text"], "maybe": 1.5}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "tide"}}])
def test_required_tool_is_called(choice: Any) -> None:
    parameters = {"type": "object", "properties": {"port": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "tide", "parameters": parameters}}]
    answer = collect(FakeProvider, ask(fields={"tools": tools, "tool_choice": choice}))
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.function and (call.function.name, call.function.arguments) == ("tide", '{"port":"text"}')
    assert answer.choices[0].finish_reason == "tool_calls" and answer.choices[0].message.content is None


TIDE = {
    "type": "function",
    "function": {"name": "tide", "parameters": {"type": "object", "properties": {"port": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("prompt", "arguments"),
    [
        ("Please call tide.", '{"port":"text"}'),
        ('Use the tool `tide` with {"port": "Brest"} now', '{"port": "Brest"}'),
        ("run the function tide {broken", '{"port":"text"}'),
        ('call tide {"port": NaN}', '{"port":"text"}'),
        ("What is the tide in Brest?", None),
        ("call tides", None),
        ("x" * 20_000 + " call tide", '{"port":"text"}'),
        ("call tide" + "x" * 20_000, None),
    ],
)
def test_offered_tool_is_called_if_the_prompt_asks_for_it(prompt: str, arguments: str | None) -> None:
    message = collect(FakeProvider, ask(prompt, fields={"tools": [TIDE]})).choices[0].message
    calls = [call.function.arguments for call in message.tool_calls or [] if call.function]
    assert calls == ([] if arguments is None else [arguments])
    assert (message.content is None) == bool(calls)


def test_tool_is_not_called_again_after_its_result_nor_if_the_caller_wants_none() -> None:
    called = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "call tide"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "high"},
    ]
    answer = collect(FakeProvider, ask(fields={"tools": [TIDE], "messages": messages}))
    assert answer.choices[0].message.content == "You said: high"
    assert not collect(FakeProvider, ask("call tide")).choices[0].message.tool_calls
    wanted = {"tools": [TIDE], "tool_choice": "none"}
    assert not collect(FakeProvider, ask("call tide", fields=wanted)).choices[0].message.tool_calls


async def test_script_sets_text_reasoning_tools_and_finish_reason() -> None:
    chunks = await chunks_of(
        {"text": "yes", "reasoning": "hm", "tool_calls": [{"name": "f"}], "finish_reason": "content_filter"}
    )
    assert text_of(chunks) == ["yes"]
    assert chunks[0].choices[0].delta.reasoning_content == "hm"
    assert any(part.delta.tool_calls for chunk in chunks for part in chunk.choices)
    assert chunks[-2].choices[0].finish_reason == "content_filter"


@pytest.mark.parametrize("count", [1, 2, 3, 7])
async def test_number_of_chunks_can_be_chosen(count: int) -> None:
    assert len(text_of(await chunks_of({"text": "one two three four", "chunks": count}))) == count


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_script_fails_after_a_number_of_chunks(count: int) -> None:
    received = []
    with pytest.raises(UpstreamRateLimited):
        script = {"text": "a b c d e", "fail_after": count, "error": "UpstreamRateLimited"}
        async for chunk in scripted(script).stream_chat(ask(), TARGET):
            received.append(chunk)
    assert len(received) == count


async def test_script_raises_like_a_plugin_with_a_bug() -> None:
    with pytest.raises(RuntimeError):
        await chunks_of({"fail_after": 0, "error": "RuntimeError"})


async def test_script_fails_whole_answers_too() -> None:
    with pytest.raises(UpstreamOverloaded):
        await scripted({"fail_after": 1, "error": "UpstreamOverloaded"}).chat(ask(), TARGET)
    with pytest.raises(UpstreamTruncated):
        await scripted({"truncated": True}).chat(ask(), TARGET)


async def test_truncated_stream_has_no_finish() -> None:
    chunks = await chunks_of({"text": "a b", "truncated": True})
    assert not any(part.finish_reason for chunk in chunks for part in chunk.choices)


@pytest.mark.parametrize(
    ("kind", "count"), [("negative", -2), ("absurd", 10**18), ("text", "many"), ("none", None), ("right", 2)]
)
async def test_usage_can_be_wrong(kind: str, count: Any) -> None:
    usages = [chunk.usage for chunk in await chunks_of({"text": "a b", "usage": kind}) if chunk.usage is not UNSET]
    assert [usage.completion_tokens for usage in usages if usage] == ([] if count is None else [count])


async def test_script_delays_are_observed() -> None:
    started = time.monotonic()
    async with at_once(within=1.0):
        await chunks_of({"text": "a b", "latency": 0.03, "first_token": 0.03, "interval": 0.03})
    assert time.monotonic() - started > 0.1


async def test_endless_stream_does_not_block_the_loop_and_can_be_closed() -> None:
    stream = cast(
        "AsyncGenerator[ChatChunk, None]", scripted({"text": "a", "endless": True}).stream_chat(ask(), TARGET)
    )
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(tick())
    for _ in range(1000):
        await anext(stream)
    await stream.aclose()
    other.cancel()
    assert ticks > 5


async def test_silence_lasts_until_it_is_cancelled() -> None:
    task = asyncio.create_task(chunks_of({"text": "a b c", "silent_after": 1}))
    await turns()
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_unknown_script_keys_are_errors() -> None:
    with pytest.raises(msgspec.ValidationError):
        scripted({"txet": "a"})


async def test_early_usage_tells_the_prompt_with_the_first_chunk() -> None:
    chunks = await chunks_of({"text": "a b", "early_usage": True})
    early = chunks[0].usage
    assert early and (early.prompt_tokens, early.completion_tokens) == (2, 0)
    assert [chunk.usage is not UNSET for chunk in chunks] == [True, False, False, True]


async def test_hidden_reasoning_is_counted_and_never_said() -> None:
    chunks = await chunks_of({"text": "a b", "hidden_reasoning": 500})
    usage = chunks[-1].usage
    assert usage and (usage.completion_tokens, usage.completion_tokens_details.reasoning_tokens) == (502, 500)
    assert text_of(chunks) == ["a ", "b"]


async def test_sound_images_and_a_custom_call_are_said_and_counted() -> None:
    chunks = await chunks_of({"text": "", "audio_seconds": 2, "images": 1, "custom_input": "ls -l"})
    deltas = [part.delta for chunk in chunks for part in chunk.choices]
    assert sum(delta.audio is not UNSET for delta in deltas) == 2
    assert sum(delta.images is not UNSET for delta in deltas) == 1
    assert [delta.tool_calls[0].custom.input for delta in deltas if delta.tool_calls] == ["ls -l"]
    usage = chunks[-1].usage
    assert usage and usage.completion_tokens == 2 + 2 * 20 + 1290


@pytest.mark.parametrize(("kind", "count"), [("zero", 0), ("large", 999_000)])
async def test_lie_about_the_output_leaves_the_prompt(kind: str, count: int) -> None:
    usage = (await chunks_of({"text": "a b", "usage": kind}))[-1].usage
    assert usage and (usage.prompt_tokens, usage.completion_tokens) == (2, count)

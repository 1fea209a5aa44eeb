"""Chunks that are not quite JSON, or not quite chunks, and the text that they carry all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

from .streams import USAGE, chunk, documents, error_of, finishes, text_of

STREAM = {"Content-Type": "text/event-stream"}
END = chunk(finish="stop")


def content(text: bytes) -> bytes:
    """A frame with this content, which is JSON text already."""
    return b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % text


async def test_halves_of_an_emoji_in_two_chunks_are_one_character(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/elie222/rakazo/issues/416"""
    frames = [content(b"Hi "), content(rb"\ud83d"), content(rb"\ude00!"), content(b" Bye"), END]
    upstream.enqueue(Reply.stream(frames))
    _, text, failure = await client.stream()
    assert (text_of(text), finishes(text), failure) == ("Hi \U0001f600! Bye", ["stop"], None)


async def test_halves_of_a_character_in_arguments_are_one_character(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/elizaOS/eliza/issues/30904"""
    frames = [
        rb'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"say","arguments":'
        rb'"{\"text\":\"\ud83d"}}]},"finish_reason":null}]}',
        rb'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}}]}',
    ]
    upstream.enqueue(Reply.stream([*(b"data: %b\n\n" % frame for frame in frames), chunk(finish="tool_calls")]))
    _, text, failure = await client.stream()
    calls = [call for frame in documents(text) for call in frame["choices"][0]["delta"].get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"text":"\U0001f600"}'
    assert failure is None


async def test_half_of_a_character_without_its_other_half_does_not_end_the_answer(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/anthropics/claude-code/issues/69927, of the kind: here the half is in an answer."""
    upstream.enqueue(Reply.stream([content(rb"a\ude00b"), content(rb"c\ud83d"), END]))
    _, text, failure = await client.stream()
    assert (text_of(text), finishes(text), failure) == ("a\ufffdbc\ufffd", ["stop"], None)


@pytest.mark.parametrize("streamed", [False, True])
async def test_logarithm_of_zero_is_openais_least_number(
    client: Client, upstream: FakeUpstream, streamed: bool
) -> None:
    """https://github.com/vllm-project/vllm/pull/11073"""
    token = (
        '{"token":"Hi","logprob":-0.1,"bytes":null,"top_logprobs":[{"token":"No","logprob":-Infinity,"bytes":null}]}'
    )
    part = '"delta":{"content":"Hi"}' if streamed else '"message":{"role":"assistant","content":"Hi"}'
    finish = "null" if streamed else '"stop"'
    body = f'{{"choices":[{{"index":0,{part},"logprobs":{{"content":[{token}]}},"finish_reason":{finish}}}]}}'.encode()
    asked = {"logprobs": True, "top_logprobs": 1}
    if streamed:
        upstream.enqueue(Reply.stream([b"data: %b\n\n" % body, END]))
        _, text, _ = await client.stream(**asked)
        [choice] = [frame["choices"][0] for frame in documents(text) if frame["choices"][0]["logprobs"]]
    else:
        upstream.enqueue(Reply(headers={"Content-Type": "application/json"}, body=body))
        _, answer = await client.chat(**asked)
        choice = answer["choices"][0]
    assert choice["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] == -9999.0


async def test_byte_that_is_no_utf8_does_not_end_the_answer(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/anthropics/claude-code/issues/72995, of the kind: here the bytes are in an answer."""
    upstream.enqueue(Reply.stream([content(b"caf\xe9 "), content(b"noir"), END]))
    _, text, failure = await client.stream()
    assert (text_of(text), failure) == ("caf\ufffd noir", None)


async def test_event_called_error_with_plain_text_is_that_error(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/preloop/preloop/pull/121"""
    upstream.enqueue(Reply(headers=STREAM, frames=[b"event: error\ndata: Rate limit exceeded\n\n"]))
    response, text, _ = await client.stream()
    assert (response.status, "slow_down" in text) == (429, True)


async def test_usage_chunk_with_null_choices_is_read(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/CherryHQ/cherry-studio/issues/11287, of the kind: `choices: null` in a chunk."""
    upstream.enqueue(Reply.stream([chunk({"content": "Hi"}), END, {"choices": None, "usage": USAGE}]))
    _, text, _ = await client.stream(stream_options={"include_usage": True})
    assert documents(text)[-1]["usage"]["total_tokens"] == 19


@pytest.mark.parametrize(
    "frame", [b"event: ping\ndata: {}\n\n", b"event: ping\ndata: ping\n\n", b": ping\n\n", b"\n\n"]
)
async def test_pings_of_servers_that_follow_anthropic_are_passed_over(
    client: Client, upstream: FakeUpstream, frame: bytes
) -> None:
    """https://github.com/agentgateway/agentgateway/pull/681, of the kind: events that carry no payload."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 9}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    named = [b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in events]
    upstream.enqueue(Reply(headers=STREAM, frames=[named[0], frame, *named[1:3], frame, *named[3:]]))
    _, text, failure = await client.stream(model="claude")
    assert (text_of(text), finishes(text), failure) == ("Hi", ["stop"], None)


MESSAGE: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
]


@pytest.mark.parametrize("end", [[{"type": "message_stop"}], []], ids=["after message_stop", "in its place"])
async def test_done_of_servers_that_follow_anthropic_and_openai_is_an_end(
    client: Client, upstream: FakeUpstream, end: list[dict[str, Any]]
) -> None:
    """https://github.com/vllm-project/vllm/pull/37510 and https://github.com/huggingface/tau/pull/692"""
    upstream.enqueue(Reply.stream([*MESSAGE, *end]))
    _, text, failure = await client.stream(model="claude")
    assert (text_of(text), finishes(text), failure) == ("Hi", ["stop"], None)


async def test_done_of_servers_that_follow_gemini_and_openai_is_passed_over(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/NVIDIA-NeMo/Switchyard/pull/136, in Gemini's dialect."""
    said = {"content": {"role": "model", "parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    upstream.enqueue(Reply.stream([{"candidates": [said]}]))
    _, text, failure = await client.stream(model="gemini")
    assert (text_of(text), finishes(text), failure) == ("Hi", ["stop"], None)


async def test_done_without_a_stop_reason_is_no_end_of_a_message(client: Client, upstream: FakeUpstream) -> None:
    """The other side of the case before."""
    upstream.enqueue(Reply.stream(MESSAGE[:3]))
    _, text, _ = await client.stream(model="claude")
    assert error_of(text)["code"] == "upstream_stream_truncated"


@pytest.mark.parametrize("data", [b"overloaded", b'{"type":"overloaded_error","message":"Overloaded"}'])
async def test_error_event_of_servers_that_follow_anthropic_is_that_error(
    client: Client, upstream: FakeUpstream, data: bytes
) -> None:
    """https://github.com/envoyproxy/ai-gateway/pull/2239 (529 in the middle of a stream)."""
    upstream.enqueue(Reply(headers=STREAM, frames=[b"event: error\ndata: %b\n\n" % data]))
    response, text, _ = await client.stream(model="claude")
    assert (response.status, "server_is_overloaded" in text) == (503, True)


async def test_stop_reason_that_names_a_failure_is_no_regular_end(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/earendil-works/pi/issues/2313, in Anthropic's dialect."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 9}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "network_error"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    upstream.enqueue(Reply.stream(list(events), done=False))
    _, text, _ = await client.stream(model="claude")
    assert (text_of(text), error_of(text)["code"]) == ("Hi", "upstream_error")

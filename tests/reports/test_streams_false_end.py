"""Streams of servers whose finish reasons are no ends, and of servers that name none.

- https://github.com/open-webui/open-webui/issues/16377: a proxy adds `finish_reason: "stop"` to every chunk. What came
  after the first one was lost, and the answer looked complete.
- https://github.com/waybarrios/vllm-mlx/issues/628: `[DONE]` follows chunks without any finish reason. The answer was
  reported as truncated.
- https://github.com/vllm-project/vllm/pull/46303: a tool call that the output limit cut off must end with `length`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3000, "total_tokens": 3005}}


def part(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """One chunk with one choice."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments: str, **first: Any) -> dict[str, Any]:
    """A fragment of the tool call `read`."""
    return {
        "tool_calls": [
            {"index": 0, **first, "function": {"arguments": arguments, **({"name": "read"} if first else {})}}
        ]
    }


#: Two fragments of each kind of content, and what the client must read of both.
KINDS: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "text": ([{"content": "Good "}, {"content": "day"}], "Good day"),
    "tool arguments": ([call('{"path":', id="call_1", type="function"), call(' "a.txt"}')], '{"path": "a.txt"}'),
    "reasoning": ([{"reasoning_content": "Good "}, {"reasoning_content": "day"}], "Good day"),
    "refusal": ([{"refusal": "Not "}, {"refusal": "this"}], "Not this"),
    "audio": ([{"audio": {"data": "AAAA"}}, {"audio": {"data": "BBBB"}}], "AAAABBBB"),
    "images": ([{"images": [{"n": 1}]}, {"images": [{"n": 2}]}], [1, 2]),
}
FALSE_ENDS = {
    "stop": part({}, "stop"),
    "empty": part({}, ""),
    "unknown": part({}, "odd"),
    "stop and an empty text": part({"content": ""}, "stop"),
}


def read(frames: list[dict[str, Any]], kind: str) -> Any:
    """What the client reads of one kind of content."""
    deltas = [choice["delta"] for frame in frames for choice in frame["choices"]]
    if kind == "text":
        return "".join(delta.get("content") or "" for delta in deltas)
    if kind == "tool arguments":
        calls = [one for delta in deltas for one in delta.get("tool_calls", [])]
        assert {one["index"] for one in calls} == {0}
        assert [one["function"]["name"] for one in calls if "name" in one["function"]] == ["read"]
        return "".join(one["function"]["arguments"] for one in calls)
    if kind == "audio":
        return "".join(delta["audio"]["data"] for delta in deltas if "audio" in delta)
    if kind == "images":
        return [image["n"] for delta in deltas for image in delta.get("images", [])]
    name = {"reasoning": "reasoning_content", "refusal": "refusal"}[kind]
    return "".join(delta.get(name) or "" for delta in deltas)


async def streamed(client: Client) -> tuple[list[dict[str, Any]], bool, BaseException | None]:
    """The frames of a stream, whether it ended with `[DONE]`, and how reading ended if not well."""
    _, text, failure = await client.stream(stream_options={"include_usage": True})
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    done = bool(lines) and lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines if line != "[DONE]"], done, failure


def finishes(frames: list[dict[str, Any]]) -> list[str]:
    """The finish reasons that the client sees."""
    found = [choice.get("finish_reason") for frame in frames for choice in frame.get("choices", [])]
    return [reason for reason in found if reason]


@pytest.mark.parametrize("place", ["between", "after each", "first"])
@pytest.mark.parametrize("false_end", FALSE_ENDS)
@pytest.mark.parametrize("kind", KINDS)
async def test_content_after_a_finish_that_is_no_end_reaches_the_client(
    client: Client, upstream: FakeUpstream, kind: str, false_end: str, place: str
) -> None:
    (one, two), whole = KINDS[kind]
    end = FALSE_ENDS[false_end]
    chunks = {
        "between": [part(one), end, part(two)],
        "after each": [part(one), end, part(two), end],
        "first": [end, part(one), part(two)],
    }[place]
    upstream.enqueue(Reply.stream([*chunks, USAGE]))
    frames, done, failure = await streamed(client)
    assert (done, failure) == (True, None)
    assert read(frames, kind) == whole
    assert finishes(frames) == ["tool_calls" if kind == "tool arguments" else "stop"]
    assert frames[-1]["usage"]["completion_tokens"] == 3000


async def test_call_whose_arguments_follow_false_finishes_is_one_call(client: Client, upstream: FakeUpstream) -> None:
    stop = part({}, "stop")
    fragments = [call("", id="call_1", type="function"), call('{"path":'), call(' "a.txt"}')]
    chunks = [chunk for fragment in fragments for chunk in (part(fragment), stop)]
    upstream.enqueue(Reply.stream([*chunks, part({}, "tool_calls"), USAGE]))
    frames, done, failure = await streamed(client)
    assert (done, failure, finishes(frames)) == (True, None, ["tool_calls"])
    assert read(frames, "tool arguments") == '{"path": "a.txt"}'


@pytest.mark.parametrize("done", [True, False])
async def test_name_of_a_call_that_comes_after_a_false_finish_is_not_lost(
    client: Client, upstream: FakeUpstream, done: bool
) -> None:
    first = {"tool_calls": [{"index": 0, "id": "call_1", "function": {"arguments": '{"path":'}}]}
    named = {"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": ' "a.txt"}'}}]}
    upstream.enqueue(Reply.stream([part(first, "stop"), part(named), part({}, "tool_calls"), USAGE], done=done))
    frames, ended, failure = await streamed(client)
    assert (ended, failure, finishes(frames)) == (True, None, ["tool_calls"])
    assert read(frames, "tool arguments") == '{"path": "a.txt"}'


async def test_long_text_after_a_false_finish_is_charged(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([part({"content": "a"}), part({}, "stop"), *[part({"content": "word "})] * 200]))
    frames, done, _ = await streamed(client)
    assert done
    assert read(frames, "text") == "a" + "word " * 200
    assert frames[-1]["usage"]["completion_tokens"] >= 200


@pytest.mark.parametrize("kind", KINDS)
async def test_done_without_a_finish_reason_is_a_complete_answer(
    client: Client, upstream: FakeUpstream, kind: str
) -> None:
    fragments, whole = KINDS[kind]
    upstream.enqueue(Reply.stream([part(fragment) for fragment in fragments]))
    frames, done, failure = await streamed(client)
    assert (done, failure, read(frames, kind)) == (True, None, whole)
    assert finishes(frames) == ["tool_calls" if kind == "tool arguments" else "stop"]


@pytest.mark.parametrize("last", [None, "", "odd"])
@pytest.mark.parametrize("kind", KINDS)
async def test_stream_that_ends_without_finish_and_marker_is_a_truncation(
    client: Client, upstream: FakeUpstream, kind: str, last: str | None
) -> None:
    fragments, _ = KINDS[kind]
    upstream.enqueue(Reply.stream([*map(part, fragments), part({}, last)], done=False))
    frames, done, _ = await streamed(client)
    assert not done
    assert (frames[-1]["error"]["code"], finishes(frames)) == ("upstream_stream_truncated", [])


@pytest.mark.parametrize("kind", KINDS)
async def test_close_behind_content_that_follows_a_finish_is_a_truncation(
    client: Client, upstream: FakeUpstream, kind: str
) -> None:
    (one, two), _ = KINDS[kind]
    upstream.enqueue(Reply.stream([part(one), part({}, "stop"), part(two)], done=False))
    frames, done, _ = await streamed(client)
    assert not done
    assert (frames[-1]["error"]["code"], finishes(frames)) == ("upstream_stream_truncated", [])


async def test_added_stop_hides_no_output_limit(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([part({"content": "a"}), part({}, "length"), part({}, "stop")]))
    frames, done, _ = await streamed(client)
    assert (done, finishes(frames)) == (True, ["length"])


async def test_call_that_the_output_limit_cut_off_ends_with_length(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([part(call('{"pa', id="call_1", type="function")), part({}, "length")]))
    frames, done, _ = await streamed(client)
    assert (done, finishes(frames)) == (True, ["length"])

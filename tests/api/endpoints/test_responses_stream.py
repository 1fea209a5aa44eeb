"""Streams of the Responses API: the events a client sees, their numbers, and honest ends."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO, USAGE, chunk
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/responses"


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream; each has both lines, and its type and the next number in its data."""
    events: list[dict[str, Any]] = []
    for frame in text.split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(events)
        events.append(event)
    return events


def types_of(text: str) -> list[str]:
    """The types of the events."""
    return [event["type"].removeprefix("response.") for event in events_of(text)]


async def stream(client: Client, upstream: FakeUpstream, *chunks: Any, done: bool = True, **fields: Any) -> str:
    """The text of a stream whose upstream sends `chunks`."""
    upstream.enqueue(Reply.stream(list(chunks), done=done))
    document = {"model": "m1", "input": "Hi", "stream": True, **fields}
    async with client.request("POST", PATH, json=document) as response:
        assert response.status == 200, await response.text()
        return await response.text() if done else (await response.content.read()).decode()


async def test_text_has_the_events_of_a_message(client: Client, upstream: FakeUpstream) -> None:
    text = await stream(client, upstream, *HELLO)
    assert types_of(text) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    response = events_of(text)[-1]["response"]
    assert response["status"] == "completed"
    assert response["model"] == "m1"
    assert response["store"] is False
    assert response["output"][0]["content"][0]["text"] == "Hello"
    assert response["usage"]["input_tokens"] == USAGE["prompt_tokens"]


def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    """A chunk with a fragment of a tool call."""
    fragment: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if first:
        fragment |= {"id": first["id"], "type": "function"}
        fragment["function"]["name"] = first["name"]
        fragment |= {key: value for key, value in first.items() if key == "extra_content"}
    return chunk({"tool_calls": [fragment]})


MESSAGE = ["output_item.added", "content_part.added", "output_text.delta"]
MESSAGE_END = ["output_text.done", "content_part.done", "output_item.done"]
BEGIN = ["created", "in_progress"]
ADDED, DELTA = "output_item.added", "function_call_arguments.delta"
CALL_END = ["function_call_arguments.done", "output_item.done"]
TOOLS = [{"type": "function", "name": "tide"}, {"type": "custom", "name": "patch"}]


async def test_parallel_calls_follow_one_another(client: Client, upstream: FakeUpstream) -> None:
    text = await stream(
        client,
        upstream,
        chunk({"content": "Let me see."}),
        call(0, "", id="call_a", name="tide"),
        call(0, '{"port":'),
        call(0, '"Brest"}'),
        call(1, '{"port":"Cork"}', id="call_b", name="tide"),
        chunk(finish="tool_calls"),
        tools=TOOLS,
    )
    one = [ADDED, DELTA, DELTA, *CALL_END]
    assert types_of(text) == [*BEGIN, *MESSAGE, *MESSAGE_END, *one, ADDED, DELTA, *CALL_END, "completed"]
    output = events_of(text)[-1]["response"]["output"]
    assert [(item["call_id"], item["name"], item["arguments"]) for item in output[1:]] == [
        ("call_a", "tide", '{"port":"Brest"}'),
        ("call_b", "tide", '{"port":"Cork"}'),
    ]
    assert [item["status"] for item in output] == ["completed"] * 3


async def test_interleaved_calls_keep_their_own_arguments(client: Client, upstream: FakeUpstream) -> None:
    text = await stream(
        client,
        upstream,
        call(0, "", id="call_a", name="tide"),
        call(1, "", id="call_b", name="tide"),
        call(0, '{"a":1}'),
        call(1, '{"b":2}'),
        chunk(finish="tool_calls"),
        tools=TOOLS,
    )
    output = events_of(text)[-1]["response"]["output"]
    assert [(item["call_id"], item["arguments"]) for item in output] == [("call_a", '{"a":1}'), ("call_b", '{"b":2}')]
    deltas = [event for event in events_of(text) if event["type"].endswith("arguments.delta")]
    assert [event["output_index"] for event in deltas] == [0, 1]


async def test_call_without_arguments_has_an_empty_object(client: Client, upstream: FakeUpstream) -> None:
    text = await stream(client, upstream, call(0, "", id="call_a", name="tide"), chunk(finish="stop"), tools=TOOLS)
    assert types_of(text) == [*BEGIN, ADDED, DELTA, *CALL_END, "completed"]
    assert events_of(text)[-1]["response"]["output"][0]["arguments"] == "{}"


async def test_custom_tool_is_a_function_upstream_and_a_custom_call_for_the_caller(
    client: Client, upstream: FakeUpstream
) -> None:
    text = await stream(
        client,
        upstream,
        call(0, "", id="call_a", name="patch"),
        call(0, '{"inp'),
        call(0, 'ut": "a\\'),
        call(0, "n\\u00e9\\ud83d"),
        call(0, '\\ude00"'),
        call(0, "}"),
        chunk(finish="tool_calls"),
        tools=TOOLS,
    )
    sent = upstream.seen[0].json["tools"][1]
    assert sent["function"]["parameters"]["required"] == ["input"]
    events = events_of(text)
    deltas = [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == "a\né😀"
    item = events[-1]["response"]["output"][0]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", "a\né😀")


async def test_custom_call_of_another_form_has_its_arguments_as_input(client: Client, upstream: FakeUpstream) -> None:
    text = await stream(
        client, upstream, call(0, "*** Begin", id="call_a", name="patch"), chunk(finish="tool_calls"), tools=TOOLS
    )
    assert events_of(text)[-1]["response"]["output"][0]["input"] == "*** Begin"


async def test_reasoning_is_a_summary_whose_state_comes_back(client: Client, upstream: FakeUpstream) -> None:
    blocks = [{"type": "thinking", "thinking": "Hmm. ", "signature": "sig"}]
    text = await stream(
        client,
        upstream,
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning_content": "m. "}),
        call(0, "{}", id="call_a", name="tide"),
        chunk({"thinking_blocks": blocks}, finish="tool_calls"),
        tools=TOOLS,
    )
    summary = "reasoning_summary_text"
    assert types_of(text) == [
        *[*BEGIN, ADDED, "reasoning_summary_part.added", f"{summary}.delta", f"{summary}.delta"],
        *[f"{summary}.done", "reasoning_summary_part.done", ADDED, DELTA, *CALL_END, "output_item.done", "completed"],
    ]
    output = events_of(text)[-1]["response"]["output"]
    assert output[0]["summary"] == [{"type": "summary_text", "text": "Hmm. "}]
    result = {"type": "function_call_output", "call_id": "call_a", "output": "high"}
    await stream(client, upstream, *HELLO, input=[{"role": "user", "content": "Hi"}, *output, result], tools=TOOLS)
    answer = upstream.seen[1].json["messages"][1]
    assert answer["thinking_blocks"] == blocks
    assert answer["reasoning_content"] == "Hmm. "
    await stream(client, upstream, *HELLO, model="org/m:1", input=[{"role": "user", "content": "Hi"}, *output, result])
    assert "thinking_blocks" not in upstream.seen[2].json["messages"][1]


async def test_signature_of_a_call_comes_back_with_it(client: Client, upstream: FakeUpstream) -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    first = call(0, "{}", id="call_a", name="tide", extra_content=signature)
    text = await stream(client, upstream, first, chunk(finish="tool_calls"), tools=TOOLS)
    output = events_of(text)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    result = {"type": "function_call_output", "call_id": "call_a", "output": "high"}
    await stream(client, upstream, *HELLO, input=[{"role": "user", "content": "Hi"}, *output, result], tools=TOOLS)
    assert upstream.seen[1].json["messages"][1]["tool_calls"][0]["extra_content"] == signature


async def test_refusal_is_a_part_of_its_own(client: Client, upstream: FakeUpstream) -> None:
    text = await stream(client, upstream, chunk({"refusal": "No"}), chunk({"refusal": "."}), chunk(finish="stop"))
    assert types_of(text) == [
        *[*BEGIN, ADDED, "content_part.added", "refusal.delta", "refusal.delta", "refusal.done"],
        *["content_part.done", "output_item.done", "completed"],
    ]
    assert events_of(text)[-1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_answer_that_a_limit_ended_is_incomplete(
    client: Client, upstream: FakeUpstream, finish: str, reason: str
) -> None:
    text = await stream(client, upstream, chunk({"content": "Hel"}), chunk(finish=finish))
    last = events_of(text)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": reason}
    assert last["response"]["output"][0]["status"] == "incomplete"


async def test_annotations_and_log_probabilities_are_of_the_text(client: Client, upstream: FakeUpstream) -> None:
    citation = {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 2}
    first = chunk({"content": "Hi"})
    first["choices"][0]["logprobs"] = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    second = chunk({"annotations": [{"type": "url_citation", "url_citation": citation}]})
    included = ["message.output_text.logprobs"]
    text = await stream(client, upstream, first, second, chunk(finish="stop"), include=included)
    assert upstream.seen[0].json["logprobs"] is True
    part = events_of(text)[-1]["response"]["output"][0]["content"][0]
    assert part["annotations"] == [{"type": "url_citation", **citation}]
    assert part["logprobs"][0]["token"] == "Hi"
    assert "output_text.annotation.added" in types_of(text)


async def test_padding_of_the_upstream_is_kept_unless_declined(client: Client, upstream: FakeUpstream) -> None:
    padded = chunk({"content": "Hi"}, obfuscation="xyz")
    text = await stream(client, upstream, padded, chunk(finish="stop"))
    assert events_of(text)[4]["obfuscation"] == "xyz"
    declined = {"include_obfuscation": False}
    text = await stream(client, upstream, padded, chunk(finish="stop"), stream_options=declined)
    assert "obfuscation" not in events_of(text)[4]


async def test_error_in_the_stream_is_a_failed_response(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([*HELLO[:3], {"error": {"message": "boom sk-upstream-canary-0123456789"}}]))
    text, failure = await cut_stream(client)
    last = events_of(text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert "canary" not in text
    assert failure


async def cut_stream(client: Client, **fields: Any) -> tuple[str, bool]:
    """The text of a stream, and whether it broke off."""
    text, failure = b"", False
    document = {"model": "m1", "input": "Hi", "stream": True, **fields}
    async with client.request("POST", PATH, json=document) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            failure = True
    return text.decode(), failure


FRAMES = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Hm."}),
    *HELLO[1:3],
    call(0, "", id="call_a", name="tide"),
    call(0, "{}"),
    chunk(finish="tool_calls"),
]


@pytest.mark.parametrize("taken", range(len(FRAMES)))
async def test_stream_that_is_cut_never_completes_and_is_charged_for_what_it_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, taken: int
) -> None:
    frames = [f"data: {json.dumps(frame)}\n\n".encode() for frame in FRAMES[:taken]]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=frames, end="cut"))
    document = {"model": "m1", "input": "Hi", "stream": True, "tools": TOOLS}
    text, failure = b"", False
    async with client.request("POST", PATH, json=document) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            failure = True
    if not taken:
        assert response.status == 502
        return
    types = types_of(text.decode())
    assert types[-1] == "failed"
    assert "completed" not in types
    assert failure
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    delivered = "".join(event.get("delta", "") for event in events_of(text.decode()))
    assert line.meta.get("usage", {}).get("out_text", 0) == -(-len(delivered) // 4)


async def test_many_texts_in_one_piece_are_numbered_like_single_ones(client: Client, upstream: FakeUpstream) -> None:
    words = [chunk({"content": f"w{number} "}) for number in range(50)]
    frames = b"".join(f"data: {json.dumps(frame)}\n\n".encode() for frame in [*words[1:], chunk(finish="stop")])
    first = f"data: {json.dumps(words[0])}\n\n".encode()
    pieces = [first, frames + b"data: [DONE]\n\n"]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=pieces))
    text, failure = await cut_stream(client)
    assert not failure
    assert events_of(text)[-1]["response"]["output"][0]["content"][0]["text"] == "".join(f"w{n} " for n in range(50))

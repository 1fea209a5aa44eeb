"""Events and items of a server that leaves out members of the standard, as llama.cpp b11549 writes them.

Each answer here is also read by the standard's classes, as all answers of the tests are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_responses_native import PATH, stream, streamed
from tests.api.endpoints.test_responses_stream import events_of

THOUGHT = {"id": "rs_1", "summary": [], "type": "reasoning", "content": [], "encrypted_content": ""}
THOUGHT_DONE = {**THOUGHT, "content": [{"text": "Tides.", "type": "reasoning_text"}]}
TEXT_DONE = {"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello"}
MESSAGE_DONE = {"type": "message", "status": "completed", "id": "msg_1", "content": [TEXT_DONE], "role": "assistant"}
USAGE = {"input_tokens": 11, "output_tokens": 4, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 0}}


def call(name: str, arguments: str = "", status: str = "in_progress") -> dict[str, str]:
    """A call of a tool, which has no id of its own."""
    return {"arguments": arguments, "call_id": f"fc_{name}", "name": name, "type": "function_call", "status": status}


OUTPUT = [THOUGHT_DONE, MESSAGE_DONE, call("tide", '{"a":1}', "completed"), call("wind", '{"b":2}', "completed")]
BEGUN = {"id": "resp_1", "object": "response", "status": "in_progress"}
ENDED = {**BEGUN, "created_at": 1, "status": "completed", "model": "tiny.gguf", "output": OUTPUT, "usage": USAGE}
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": BEGUN},
    {"type": "response.in_progress", "response": BEGUN},
    {"type": "response.output_item.added", "item": {**THOUGHT, "status": "in_progress"}},
    {"type": "response.reasoning_text.delta", "delta": "Tides.", "item_id": "rs_1"},
    {
        "type": "response.output_item.added",
        "item": {"content": [], "id": "msg_1", "role": "assistant", "status": "in_progress", "type": "message"},
    },
    {"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text", "text": ""}},
    *[{"type": "response.output_text.delta", "item_id": "msg_1", "delta": letter} for letter in "Hello"],
    {"type": "response.output_item.added", "item": call("tide")},
    {"type": "response.function_call_arguments.delta", "delta": '{"a":1}', "item_id": "fc_tide"},
    {"type": "response.output_item.added", "item": call("wind")},
    {"type": "response.function_call_arguments.delta", "delta": '{"b":2}', "item_id": "fc_wind"},
    {"type": "response.output_item.done", "item": THOUGHT_DONE},
    {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello"},
    {"type": "response.content_part.done", "item_id": "msg_1", "part": TEXT_DONE},
    {"type": "response.output_item.done", "item": MESSAGE_DONE},
    {"type": "response.output_item.done", "item": OUTPUT[2]},
    {"type": "response.output_item.done", "item": OUTPUT[3]},
    {"type": "response.completed", "response": ENDED, "timings": {"prompt_ms": 0.7}},
]


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model on a server with the dialect."""
    up = {"plugin": "openai", "base_url": upstream.base_url, "preset": "llamacpp", "responses": True}
    model = {"provider": "up", "model": "tiny", "price": {"input": 1, "output": 2}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": up},
            "groups": {"default": {}},
            "models": {"m1": model},
        },
        demo=True,
    )


async def test_events_get_the_numbers_of_their_items_and_parts(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed(EVENTS))
    _, text, _ = await stream(client)
    events = events_of(text)
    assert [event["type"] for event in events] == [event["type"] for event in EVENTS]
    assert [event["sequence_number"] for event in events] == list(range(len(EVENTS)))
    places: dict[str, set[int]] = {}
    for event in events:
        if "output_index" in event:
            name = event.get("item_id") or event["item"]["id"]
            places.setdefault(name, set()).add(event["output_index"])
    assert places == {"rs_1": {0}, "msg_1": {1}, "fc_tide": {2}, "fc_wind": {3}}
    assert all("timings" not in event for event in events)
    texts = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in texts) == "Hello"
    assert {(event["content_index"], len(event["logprobs"])) for event in texts} == {(0, 0)}


async def test_items_of_the_last_response_have_an_id(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed(EVENTS))
    output = events_of((await stream(client))[1])[-1]["response"]["output"]
    assert [item["id"] for item in output] == ["rs_1", "msg_1", "fc_tide", "fc_wind"]


async def test_parts_of_one_item_are_numbered_in_turn(client: Client, upstream: FakeUpstream) -> None:
    second = [
        event for event in EVENTS if event["type"] in ("response.content_part.added", "response.output_text.delta")
    ]
    upstream.enqueue(streamed([*EVENTS[:11], *second, *EVENTS[11:]]))
    events = events_of((await stream(client))[1])
    texts = [event["content_index"] for event in events if event["type"] == "response.output_text.delta"]
    assert texts == [0] * 5 + [1] * 5


@pytest.mark.no_standard
async def test_event_of_an_item_that_did_not_begin_stays_as_it_is(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed([*EVENTS[:2], *EVENTS[6:8], EVENTS[-1]]))
    events = events_of((await stream(client))[1])
    assert [event["type"] for event in events].count("response.output_text.delta") == 2
    assert "output_index" not in events[2]


async def test_calls_of_a_whole_answer_have_an_id(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ENDED))
    async with client.request("POST", PATH, json={"model": "m1", "input": "Hi"}) as got:
        answer = await got.json()
    assert [item["id"] for item in answer["output"]] == ["rs_1", "msg_1", "fc_tide", "fc_wind"]

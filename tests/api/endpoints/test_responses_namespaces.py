"""Tools in namespaces: functions for models of other dialects, and the caller's own names in every answer."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.schemas.responses.tool_names import flat_name
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import chunk
from tests.api.endpoints.test_responses_json import completion, respond
from tests.api.endpoints.test_responses_stream import call, events_of, stream

SPACE = {
    "type": "namespace",
    "name": "mcp__node",
    "description": "Node.",
    "tools": [
        {"type": "function", "name": "run", "description": "Runs.", "parameters": {"type": "object"}},
        {"type": "custom", "name": "patch"},
    ],
}
PLAIN = {"type": "function", "name": "run"}
ODD = {"type": "function", "name": "a", "parameters": 1}


def called(name: str, arguments: str = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": "call_a", "type": "function", "function": function}]}


def names(upstream: FakeUpstream) -> list[str]:
    return [tool["function"]["name"] for tool in upstream.seen[-1].json["tools"]]


async def test_tools_of_a_namespace_are_functions_where_it_stands(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Hello"}))
    response, _ = await respond(client, tools=[PLAIN, SPACE, {"type": "custom", "name": "edit"}])
    assert "x-gateway-dropped-params" not in response.headers
    assert names(upstream) == ["run", "mcp__node__run", "mcp__node__patch", "edit"]
    function = upstream.seen[0].json["tools"][1]["function"]
    assert function == {"name": "mcp__node__run", "description": "Runs.", "parameters": {"type": "object"}}


async def test_calls_come_back_with_name_and_namespace(client: Client, upstream: FakeUpstream) -> None:
    for flat, kind, value in (
        ("mcp__node__run", "function_call", "arguments"),
        ("mcp__node__patch", "custom_tool_call", "input"),
    ):
        upstream.enqueue(completion(called(flat, '{"input":"x"}'), "tool_calls"))
        _, body = await respond(client, tools=[PLAIN, SPACE])
        [item] = body["output"]
        name = flat.rpartition("__")[2]
        assert (item["type"], item["name"], item["namespace"]) == (kind, name, "mcp__node")
        assert item[value] in ('{"input":"x"}', "x")
    upstream.enqueue(completion(called("run"), "tool_calls"))
    _, body = await respond(client, tools=[PLAIN, SPACE])
    assert "namespace" not in body["output"][0]


async def test_streamed_calls_have_the_namespace_in_every_event_that_names_them(
    client: Client, upstream: FakeUpstream
) -> None:
    made = [call(0, "{}", id="call_a", name="mcp__node__run"), chunk(finish="tool_calls")]
    text = await stream(client, upstream, *made, tools=[SPACE])
    named = [event.get("item", event) for event in events_of(text) if "name" in event.get("item", event)]
    assert len(named) == 3  # added, arguments done, item done
    assert {(one["name"], one["namespace"]) for one in named} == {("run", "mcp__node")}
    [item] = events_of(text)[-1]["response"]["output"]
    assert (item["name"], item["namespace"]) == ("run", "mcp__node")


async def test_calls_of_earlier_turns_go_up_by_the_same_name(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Done"}))
    item = {"type": "function_call", "call_id": "c", "name": "run", "namespace": "mcp__node", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    response, body = await respond(client, tools=[SPACE], input=[{"role": "user", "content": "Hi"}, item, result])
    assert response.status == 200, body
    assert upstream.seen[0].json["messages"][1]["tool_calls"][0]["function"]["name"] == "mcp__node__run"


@pytest.mark.parametrize(
    ("space", "name"), [("n" * 60, "run"), ("données", "run"), ("a b", "run"), ("a.b", "run"), ("n", "r" * 64)]
)
async def test_name_that_upstreams_refuse_is_shortened_and_comes_back_whole(
    client: Client, upstream: FakeUpstream, space: str, name: str
) -> None:
    tools = [{"type": "namespace", "name": space, "tools": [{"type": "function", "name": name}]}]
    flat = flat_name(space, name)
    assert len(flat) <= 64
    upstream.enqueue(completion(called(flat), "tool_calls"))
    _, body = await respond(client, tools=tools)
    assert names(upstream) == [flat]
    assert (body["output"][0]["name"], body["output"][0]["namespace"]) == (name, space)


async def test_names_that_would_be_equal_stay_apart(client: Client, upstream: FakeUpstream) -> None:
    tools = [{"type": "function", "name": "mcp__node__run"}, SPACE]
    flat = flat_name("mcp__node", "run", hashed=True)
    upstream.enqueue(completion(called(flat), "tool_calls"), completion(called("mcp__node__run"), "tool_calls"))
    _, body = await respond(client, tools=tools)
    assert names(upstream) == ["mcp__node__run", flat, "mcp__node__patch"]
    assert (body["output"][0]["name"], body["output"][0]["namespace"]) == ("run", "mcp__node")
    _, body = await respond(client, tools=tools)
    assert body["output"][0]["name"] == "mcp__node__run"
    assert "namespace" not in body["output"][0]


async def test_choice_may_name_a_tool_of_a_namespace(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Hello"}))
    choice = {"type": "function", "name": "run", "namespace": "mcp__node"}
    response, body = await respond(client, tools=[SPACE], tool_choice=choice)
    assert response.status == 200, body
    assert upstream.seen[0].json["tool_choice"]["function"]["name"] == "mcp__node__run"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "namespace", "tools": []}]}, "tools[0].name"),
        ({"tools": [{**SPACE, "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        (
            {"tools": [{**SPACE, "tools": [ODD]}]},
            "tools[0].tools[0].parameters",
        ),
        ({"tools": [{**SPACE, "tools": [SPACE]}]}, "tools[0].tools[0]"),
        ({"tools": [SPACE], "tool_choice": {"type": "function", "name": "run"}}, "tool_choice"),
        ({"tools": [SPACE], "tool_choice": {"type": "function", "name": "run", "namespace": "other"}}, "tool_choice"),
    ],
)
async def test_what_cannot_be_read_is_refused_by_its_place(client: Client, fields: dict[str, Any], param: str) -> None:
    response, body = await respond(client, **fields)
    assert (response.status, body["error"]["param"]) == (400, param)

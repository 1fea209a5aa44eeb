"""Marks for the upstream's cache on parts of a Responses request: forwarded, or in the words of the upstream."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.reports.conftest import settings as settings

MARK = {"mode": "explicit", "ttl": "12h"}
INPUT: list[dict[str, Any]] = [
    {"role": "developer", "content": [{"type": "input_text", "text": "Rules", "prompt_cache_breakpoint": MARK}]},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Long", "prompt_cache_breakpoint": MARK},
            {"type": "input_text", "text": "Short"},
        ],
    },
]


async def sent(client: Client, upstream: FakeUpstream, model: str, items: list[Any]) -> Any:
    """What the upstream gets for these items."""
    upstream.enqueue(Reply.error(400, "no"))
    async with client.request("POST", "/v1/responses", json={"model": model, "input": items}) as response:
        assert response.status in (400, 502), await response.text()
    return upstream.seen[-1].json


async def test_marks_are_forwarded_on_parts_of_chat(client: Client, upstream: FakeUpstream) -> None:
    developer, user = (await sent(client, upstream, "m1", INPUT))["messages"]
    assert developer["content"] == [{"type": "text", "text": "Rules", "prompt_cache_breakpoint": MARK}]
    assert [part.get("prompt_cache_breakpoint") for part in user["content"]] == [MARK, None]


async def test_marks_become_those_of_claude(client: Client, upstream: FakeUpstream) -> None:
    body = await sent(client, upstream, "claude", INPUT)
    control = {"type": "ephemeral", "ttl": "1h"}
    assert [block.get("cache_control") for block in body["system"]] == [control]
    assert [block.get("cache_control") for block in body["messages"][0]["content"]] == [control, None]


async def test_mark_on_a_result_becomes_one_of_claude(client: Client, upstream: FakeUpstream) -> None:
    output = [{"type": "input_text", "text": "6:40", "prompt_cache_breakpoint": MARK}]
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "function_call", "call_id": "call_1", "name": "tide", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": output},
    ]
    body = await sent(client, upstream, "claude", items)
    assert "cache_control" in str(body["messages"][-1])


@pytest.mark.parametrize("mark", [{"ttl": "1w"}, {"mode": "x"}, 3])
async def test_unknown_mark_is_refused_by_name(client: Client, mark: Any) -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": mark}]}]
    async with client.request("POST", "/v1/responses", json={"model": "m1", "input": items}) as response:
        assert response.status == 400
        assert "prompt_cache_breakpoint" in (await response.json())["error"]["param"]


@pytest.mark.parametrize("model", ["m1", "claude", "gemini", "bedrock"])
async def test_beginning_of_a_request_is_the_same_in_the_next_turn(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    """Byte for byte: the upstream's cache compares from the start."""
    tools = [
        {"type": "function", "name": "b", "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}},
        {
            "type": "namespace",
            "name": "a",
            "tools": [{"type": "function", "name": "x"}, {"type": "custom", "name": "c"}],
        },
    ]
    turns: list[Any] = [*INPUT, {"type": "function_call", "call_id": "call_1", "name": "b", "arguments": '{"z": 1}'}]
    turns += [{"type": "function_call_output", "call_id": "call_1", "output": "one"}]
    bodies = []
    for items in (turns, [*turns, {"role": "user", "content": "More"}]):
        upstream.enqueue(Reply.error(400, "no"))
        async with client.request("POST", "/v1/responses", json={"model": model, "input": items, "tools": tools}):
            bodies.append(upstream.seen[-1].body)
    first, second = bodies
    same = next(at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    messages = second.index(b"More")
    assert same >= min(len(first), messages) - 120, (first[same - 20 : same + 40], second[same - 20 : same + 40])

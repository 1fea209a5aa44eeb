"""Empty lists and nulls for fields that a client does not use.

- https://github.com/earendil-works/pi/issues/3649: an agent without tools sends `"tools": []`; the server refuses it.
- https://github.com/end-4/dots-hyprland/issues/3635: `tool_choice` and `parallel_tool_calls` stay behind without tools.
- https://github.com/openai/openai-node/pull/1341: an answer that is sent back has `"tool_calls": []`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.schemas.chat_request import ChatRequest
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}
OPTIONAL = sorted(set(ChatRequest.field_classes) - {"model", "messages"})
TOOL = {"type": "function", "function": {"name": "read"}}


async def sent(client: Client, upstream: FakeUpstream, **fields: Any) -> dict[str, Any]:
    """What the upstream gets of a request with these fields, which is served."""
    upstream.enqueue(Reply.json(WHOLE))
    response, answer = await client.chat(**fields)
    assert response.status == 200, answer
    return dict(upstream.seen[-1].json)


@pytest.mark.parametrize("name", ["tools", "functions", "stop", "modalities"])
async def test_empty_list_of_an_optional_field_is_absent(client: Client, upstream: FakeUpstream, name: str) -> None:
    assert await sent(client, upstream, **{name: []}) == await sent(client, upstream)


@pytest.mark.parametrize("name", OPTIONAL)
async def test_null_of_an_optional_field_is_absent(client: Client, upstream: FakeUpstream, name: str) -> None:
    assert await sent(client, upstream, **{name: None}) == await sent(client, upstream)


@pytest.mark.parametrize("tools", [[], None])
@pytest.mark.parametrize("choice", ["auto", "none", "required", {"type": "function", "function": {"name": "read"}}])
async def test_fields_that_need_tools_go_with_an_empty_list(
    client: Client, upstream: FakeUpstream, tools: Any, choice: Any
) -> None:
    fields = {"tools": tools, "tool_choice": choice, "parallel_tool_calls": False}
    assert await sent(client, upstream, **fields) == await sent(client, upstream)


@pytest.mark.parametrize(
    "fields", [{"tool_choice": "auto"}, {"tool_choice": "none", "parallel_tool_calls": True}, {"function_call": "auto"}]
)
async def test_choice_that_asks_for_nothing_is_not_sent_without_tools(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any]
) -> None:
    assert await sent(client, upstream, **fields) == await sent(client, upstream)


@pytest.mark.parametrize("choice", ["auto", "none", {"name": "read"}])
async def test_function_call_goes_with_an_empty_list_of_functions(
    client: Client, upstream: FakeUpstream, choice: Any
) -> None:
    assert await sent(client, upstream, functions=[], function_call=choice) == await sent(client, upstream)


async def test_empty_functions_beside_tools_leave_the_tools(client: Client, upstream: FakeUpstream) -> None:
    seen = await sent(client, upstream, tools=[TOOL], functions=[], tool_choice="required")
    assert (seen["tools"], seen["tool_choice"]) == ([TOOL], "required")


@pytest.mark.parametrize("empty", ["[]", "[ ]", "[\\n\\t]"])
async def test_empty_tool_calls_of_an_earlier_answer_are_not_sent(
    client: Client, upstream: FakeUpstream, empty: str
) -> None:
    upstream.enqueue(Reply.json(WHOLE))
    calls = empty.encode().decode("unicode_escape")
    answer = '{"role":"assistant","content":"Yes?","tool_calls":' + calls + ',"odd":[]}'
    user = '{"role":"user","content":"[]"}'
    body = '{"model":"m1","messages":[' + f"{user},{answer},{user}]}}"
    headers = {**client.headers, "Content-Type": "application/json"}
    async with client.request("POST", "/v1/chat/completions", data=body, headers=headers) as response:
        assert response.status == 200
    assert upstream.seen[-1].json["messages"] == [
        {"role": "user", "content": "[]"},
        {"role": "assistant", "content": "Yes?", "odd": []},
        {"role": "user", "content": "[]"},
    ]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_empty_list_that_changes_the_answer_is_refused(client: Client, path: str) -> None:
    body = {"model": "m1", "messages": [], "input": []}
    async with client.request("POST", path, json=body) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "empty_array"


def test_every_optional_field_that_takes_a_list_is_known() -> None:
    lists = {
        field.encode_name
        for field in msgspec.structs.fields(ChatRequest)
        if field.encode_name in OPTIONAL and "list[" in str(field.type)
    }
    assert lists == {"tools", "functions", "stop", "modalities"}

"""Whole answers of the Responses API, what upstreams get of a request, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import USAGE

PATH = "/v1/responses"
TOOLS = [{"type": "function", "name": "tide"}, {"type": "custom", "name": "patch"}]


def completion(message: dict[str, Any], finish: str = "stop", **fields: Any) -> Reply:
    """A whole answer of the upstream."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return Reply.json({"id": "up", "object": "chat.completion", "choices": [choice], "usage": USAGE, **fields})


async def respond(client: Client, **fields: Any) -> tuple[Any, Any]:
    """A call; the HTTP response and its JSON."""
    async with client.request("POST", PATH, json={"model": "m1", "input": "Hi", **fields}) as response:
        return response, await response.json()


async def test_whole_answer_is_a_response_object(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Hello"}))
    response, body = await respond(
        client, instructions="Be brief.", temperature=0.5, metadata={"a": "b"}, store=True, max_output_tokens=99
    )
    assert response.status == 200
    assert body["id"].startswith("resp_")
    assert body["object"] == "response"
    assert body["status"] == "completed"
    assert body["output"][0]["type"] == "message"
    part = {"type": "output_text", "text": "Hello", "annotations": []}
    assert body["output"][0]["content"] == [part]
    assert body["usage"] == {
        "input_tokens": 17,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 19,
    }
    echoed = {name: body[name] for name in ("instructions", "temperature", "metadata", "store", "max_output_tokens")}
    assert echoed == {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "metadata": {"a": "b"},
        "store": False,
        "max_output_tokens": 99,
    }
    assert body["error"] is None
    assert body["incomplete_details"] is None
    assert body["previous_response_id"] is None
    assert body["text"] == {"format": {"type": "text"}}
    assert body["reasoning"] == {"effort": None, "summary": None}
    sent = upstream.seen[0].json
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert "store" not in sent


async def test_whole_answer_has_reasoning_calls_and_refusals_as_items(client: Client, upstream: FakeUpstream) -> None:
    calls = [
        {"id": "call_a", "type": "function", "function": {"name": "tide", "arguments": '{"port":"Brest"}'}},
        {"id": "call_b", "type": "function", "function": {"name": "patch", "arguments": '{"input":"x"}'}},
    ]
    message = {"content": "Look.", "reasoning_content": "Hm.", "tool_calls": calls, "refusal": "No."}
    upstream.enqueue(completion(message, "tool_calls"))
    _, body = await respond(client, tools=TOOLS)
    kinds = [item["type"] for item in body["output"]]
    assert kinds == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert [part["type"] for part in body["output"][1]["content"]] == ["output_text", "refusal"]
    assert body["output"][3]["input"] == "x"


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
async def test_whole_answer_that_a_limit_ended_is_incomplete(
    client: Client, upstream: FakeUpstream, finish: str, reason: str
) -> None:
    upstream.enqueue(completion({"content": "Hel"}, finish))
    _, body = await respond(client)
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": reason}


async def test_conversation_becomes_messages(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Hello"}))
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"}
    items = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "See"}, image]},
        {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "tide", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "a\n"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "high"}, image]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA-of-another-vendor"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "role": "user", "content": "And?"},
    ]  # fmt: skip
    response, body = await respond(client, input=items, tools=TOOLS)
    assert response.status == 200, body
    assert response.headers["x-gateway-dropped-params"] == "input[web_search_call]"
    sent = upstream.seen[0].json["messages"]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    assert sent == [
        {"role": "developer", "content": "Rules."},
        {"role": "user", "content": [{"type": "text", "text": "See"}, picture]},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "patch", "arguments": '{"input":"a\\n"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "high"}]},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
        {"role": "user", "content": [{"type": "text", "text": "From the result of the call c1:"}, picture]},
        {"role": "user", "content": "And?"},
    ]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("caf\u20ac", "caf?"), ("\ud83d", "?"), ("a\r\nx-injected: 1", "a??x-injected??1"), ("a\0b", "a?b")],
)
async def test_type_of_a_tool_that_no_header_can_have_is_named_with_question_marks(
    client: Client, upstream: FakeUpstream, kind: str, shown: str
) -> None:
    upstream.enqueue(completion({"content": "Hello"}))
    response, body = await respond(client, tools=[*TOOLS, {"type": kind}])
    assert response.status == 200, body
    assert response.headers["x-gateway-dropped-params"].partition(",")[0] == f"tools[{shown}]"
    assert "x-injected" not in response.headers


async def test_options_become_those_of_chat(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "{}"}))
    schema = {"type": "object", "properties": {}}
    await respond(
        client,
        text={"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": "auto"},
        tools=[{**TOOLS[0], "parameters": schema, "strict": False, "description": "Tides."}],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "tide"}]},
        parallel_tool_calls=False,
        max_output_tokens=50,
        top_logprobs=2,
        service_tier="default",
        prompt_cache_key="k",
        custom_field=1,
        client_metadata={"session_id": "s"},
    )
    sent = upstream.seen[0].json
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    assert sent["response_format"] == form
    assert (sent["verbosity"], sent["reasoning_effort"], sent["parallel_tool_calls"]) == ("low", "low", False)
    assert (sent["logprobs"], sent["top_logprobs"], sent["custom_field"]) == (True, 2, 1)
    function = {"name": "tide", "description": "Tides.", "parameters": schema, "strict": False}
    assert sent["tools"] == [{"type": "function", "function": function}]
    assert sent["tool_choice"]["allowed_tools"]["tools"] == [{"type": "function", "function": {"name": "tide"}}]
    assert sent["max_tokens"] == 50
    assert "client_metadata" not in sent


async def test_hosted_tools_are_left_out_and_named(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Hello"}), completion({"content": "Hello"}))
    hosted = [{"type": "web_search", "external_web_access": True}, {"type": "namespace", "name": "n", "tools": []}]
    response, _ = await respond(client, tools=[*TOOLS, *hosted], tool_choice="auto", client_metadata={"a": 1})
    assert response.headers["x-gateway-dropped-params"] == "tools[namespace],tools[web_search],client_metadata"
    assert len(upstream.seen[0].json["tools"]) == 2
    response, _ = await respond(client, tools=hosted, tool_choice="auto")
    assert response.status == 200
    assert "tools" not in upstream.seen[1].json


HOSTED = {"type": "web_search"}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
    ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
    ({"background": True}, "unsupported_parameter", "background"),
    ({"prompt": {"id": "pmpt_1"}}, "unsupported_parameter", "prompt"),
    ({"context_management": []}, "unsupported_parameter", "context_management"),
    ({"prompt_cache_options": {"prewarm": True}}, "unsupported_parameter", "prompt_cache_options.prewarm"),
    ({"tools": [HOSTED], "tool_choice": HOSTED}, "unsupported_parameter", "tool_choice"),
    ({"tools": [HOSTED], "tool_choice": "required"}, "unsupported_parameter", "tool_choice"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "invalid_value", "tool_choice"),
    ({"input": []}, "empty_array", "input"),
    ({"input": 3}, "invalid_type", "input"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "unsupported_parameter", "input[0]"),
    (
        {"input": [{"type": "compaction_trigger"}, {"role": "user", "content": "a"}]},
        "invalid_value",
        "input[0].type",
    ),
    ({"input": [{"type": "nonsense"}]}, "invalid_value", "input[0].type"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "invalid_value", "input"),
    ({"input": [{"role": "user"}]}, "missing_required_parameter", "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, "invalid_value", "input[0].content[0].type"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]},
        "unsupported_parameter",
        "input[0].content[0].file_id",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://a"}]}]},
        "unsupported_parameter",
        "input[0].content[0].file_url",
    ),
    (
        {"input": [{"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "x", "output": ""}]},
        "invalid_value",
        "input[1].call_id",
    ),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a", "parameters": 3}]}, "invalid_type", "tools[0].parameters"),
    ({"tools": [{"name": "a"}]}, "missing_required_parameter", "tools[0].type"),
    ({"text": {"format": {"type": "json_schema"}}}, "missing_required_parameter", "text.format.name"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": 3}}}, "invalid_type", "text.format.schema"),
    ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
    ({"include": ["everything"]}, "invalid_value", "include[0]"),
    ({"max_output_tokens": 0}, "integer_below_min_value", "max_output_tokens"),
    ({"temperature": 3}, "decimal_above_max_value", "temperature"),
    ({"stream_options": {"include_obfuscation": 3}}, "invalid_type", "stream_options.include_obfuscation"),
    ({"model": "capped", "max_output_tokens": 101}, "integer_above_max_value", "max_output_tokens"),
    ({"model": "capped", "input": "word " * 4000}, "context_length_exceeded", "input"),
]


@pytest.mark.parametrize(("fields", "code", "param"), REFUSED, ids=lambda value: json.dumps(value)[:60])
async def test_refusal_names_the_field_as_the_caller_sent_it(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any], code: str, param: str
) -> None:
    response, body = await respond(client, **fields)
    assert response.status == 400, body
    assert (body["error"]["code"], body["error"]["param"]) == (code, param)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert "messages" not in body["error"]["message"]
    assert not upstream.seen


async def test_duplicate_keys_and_forbidden_names_are_handled_as_in_chat(
    client: Client, upstream: FakeUpstream
) -> None:
    body = b'{"model":"m1","input":"a","input":"b"}'
    headers = {**client.headers, "Content-Type": "application/json"}
    async with client.request("POST", PATH, data=body, headers=headers) as response:
        assert (await response.json())["error"]["code"] == "invalid_json"
    upstream.enqueue(completion({"content": "Hello"}))
    items = [{"role": "user", "content": "a", "api_base": "https://evil.example"}]
    response, _ = await respond(client, input=items, base_url="https://evil.example")
    assert response.headers["x-gateway-dropped-params"] == "base_url,input.api_base"
    assert "evil" not in json.dumps(upstream.seen[0].json)


async def test_error_of_the_upstream_names_the_fields_of_the_caller(client: Client, upstream: FakeUpstream) -> None:
    error = {"message": "Invalid 'messages[0].content': too long.", "param": "messages[0].content"}
    upstream.enqueue(Reply.json({"error": {**error, "type": "invalid_request_error", "code": "x"}}, status=400))
    response, body = await respond(client)
    assert response.status == 400
    assert body["error"]["param"] == "input"
    assert "messages" not in body["error"]["message"]


@pytest.mark.parametrize("path", ["/resp_1", "/resp_1/cancel", "/resp_1/input_items"])
async def test_stored_responses_are_not_found(client: Client, path: str) -> None:
    for method in ("GET", "DELETE", "POST"):
        async with client.request(method, PATH + path) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "response_not_found"


async def test_paths_of_other_services_of_the_vendor_are_unknown(client: Client) -> None:
    async with client.request("POST", "/v1/alpha/search", json={}) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_url"


async def test_request_of_codex_is_served_without_what_the_model_lacks(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(completion({"content": "Done"}), completion({"content": "Done"}))
    response, _ = await respond(client, **CODEX)
    assert response.status == 200
    dropped = "tools[web_search],client_metadata"
    assert response.headers["x-gateway-dropped-params"] == dropped
    sent = upstream.seen[0].json
    assert [message["role"] for message in sent["messages"]] == ["system", "developer", "developer", "user"]
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["shell", "apply_patch", "mcp__node__run"]
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": '{"output":"ok","metadata":{}}'}
    response, _ = await respond(client, **{**CODEX, "input": [*CODEX["input"], call, result]})
    assert response.status == 200
    assert upstream.seen[1].json["messages"][-1]["role"] == "tool"


def _item(role: str, text: str, number: int) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": role,
        "content": [{"type": "input_text", "text": text}],
    }


#: A request of Codex 0.171, but for the lengths of its texts and the number of its tools.
CODEX: dict[str, Any] = {
    "instructions": "You are Codex.",
    "input": [_item("developer", "Rules.", 1), _item("developer", "More.", 2), _item("user", "Do it.", 3)],
    "tools": [
        {
            "type": "function",
            "name": "shell",
            "description": "Runs.",
            "strict": False,
            "parameters": {"type": "object"},
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Patches.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
        },
        {
            "type": "namespace",
            "name": "mcp__node",
            "description": "Node.",
            "tools": [{"type": "function", "name": "run", "strict": False, "parameters": {"type": "object"}}],
        },
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-session",
    "client_metadata": {"session_id": "0199-session", "thread_id": "t", "turn_id": "u", "x": '{"a":1}'},
}

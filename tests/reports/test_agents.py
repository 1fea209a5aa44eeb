"""What makes sessions of coding agents fail behind a gateway, or cost more than they should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.ledger import Ledger, LedgerLine
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.messages_dialect import event, streamed

from .streams import USAGE, chunk, fragment

END = chunk(finish="stop")
COUNT = {"choices": [], "usage": USAGE}
MARK = {"type": "ephemeral"}
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
PATCH = '*** Begin Patch\n*** Add File: a.txt\n+Grüße "x"\n*** End Patch\n'


def events_of(text: str) -> list[dict[str, Any]]:
    """The data of the events of a stream."""
    lines = [line for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def ask(client: Client, path: str, **fields: Any) -> tuple[Any, str]:
    """The response, and its text."""
    async with client.request("POST", path, json=fields) as response:
        return response, await response.text()


async def messages(client: Client, upstream: FakeUpstream, *chunks: Any, model: str = "m1") -> list[dict[str, Any]]:
    """The events of a Messages stream whose upstream sends these chunks of chat completions."""
    upstream.enqueue(Reply.stream(list(chunks)))
    hello = [{"role": "user", "content": "Hi"}]
    response, text = await ask(
        client, "/v1/messages", model=model, max_tokens=64, messages=hello, stream=True, tools=[tool("tide")]
    )
    assert response.status == 200, text
    return events_of(text)


#: The message with which a stream of Anthropic's begins.
BEGUN: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 1},
}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object"}}


async def line_of(ledger: Ledger, response: Any) -> LedgerLine:
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert isinstance(line, LedgerLine)
    return line


async def test_cache_tokens_in_the_last_usage_alone_are_charged(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    """https://github.com/jeremychone/rust-genai/pull/258: a server's tools read and write the cache after the start."""
    last = {"input_tokens": 10, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 600, "output_tokens": 5}
    upstream.enqueue(
        streamed(
            event("message_start", message=BEGUN),
            event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hi"}),
            event("content_block_stop", index=0),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage=last),
            event("message_stop"),
        )
    )
    hello = [{"role": "user", "content": "Hi"}]
    response, _ = await ask(client, "/v1/messages", model="claude", max_tokens=64, messages=hello, stream=True)
    line = await line_of(ledger, response)
    assert -line.amount == 10 * 1000 + 300 * 1250 + 600 * 100 + 5 * 2000


async def test_cached_tokens_are_charged_once_at_the_price_of_the_cache(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    """https://github.com/BerriAI/litellm/issues/40006"""
    usage = {
        "input_tokens": 100,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 700,
        "output_tokens": 5,
    }
    content = [{"type": "text", "text": "Hi"}]
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
    upstream.enqueue(Reply.json({**answer, "usage": usage}))
    hello = [{"role": "user", "content": "Hi"}]
    response, text = await ask(client, "/v1/messages", model="claude", max_tokens=64, messages=hello)
    line = await line_of(ledger, response)
    assert -line.amount == 100 * 1000 + 200 * 100 + 700 * 1250 + 5 * 2000
    shown = json.loads(text)["usage"]
    assert {name: shown[name] for name in usage} == usage


async def test_thinking_and_text_are_two_blocks_of_one_message(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/BerriAI/litellm/issues/32357"""
    events = await messages(
        client, upstream, chunk({"reasoning_content": "Hm."}), chunk({"content": "Hello"}), END, COUNT
    )
    assert [one["type"] for one in events].count("message_start") == 1
    starts = [(one["index"], one["content_block"]["type"]) for one in events if one["type"] == "content_block_start"]
    assert starts == [(0, "thinking"), (1, "text")]
    deltas = [(one["index"], one["delta"]["type"]) for one in events if one["type"] == "content_block_delta"]
    assert {index for index, kind in deltas if kind == "thinking_delta"} == {0}
    assert {index for index, kind in deltas if kind == "text_delta"} == {1}
    assert [one["index"] for one in events if one["type"] == "content_block_stop"] == [0, 1]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("counts", [False, True], ids=["usage-at-the-end", "usage-in-each-chunk"])
async def test_arguments_in_one_chunk_and_in_many_are_the_same(
    client: Client, upstream: FakeUpstream, size: int, counts: bool
) -> None:
    """https://github.com/router-for-me/CLIProxyAPI/issues/5419: also where each chunk has a usage."""
    arguments = json.dumps({"skill": "stop-slop", "text": 'a "b" ü'})
    parts = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    chunks = [fragment("", index=0, id="call_1", type="function", name="tide")]
    chunks += [fragment(part, index=0) for part in parts]
    chunks.append(chunk(finish="tool_calls"))
    if counts:
        chunks = [{**one, "usage": USAGE} for one in chunks]
    events = await messages(client, upstream, *chunks, COUNT)
    deltas = [one["delta"] for one in events if one["type"] == "content_block_delta"]
    assert json.loads("".join(one["partial_json"] for one in deltas)) == json.loads(arguments)
    [start] = [one["content_block"] for one in events if one["type"] == "content_block_start"]
    assert (start["type"], start["name"]) == ("tool_use", "tide")


@pytest.mark.parametrize("model", ["claude", "bedrock"])
async def test_marks_of_the_cache_stay_on_their_blocks(client: Client, upstream: FakeUpstream, model: str) -> None:
    """https://github.com/Shelpuk-AI-Technology-Consulting/kitty-bridge/pull/102"""
    system = [
        {"type": "text", "text": "One", "cache_control": MARK},
        {"type": "text", "text": "Two"},
        {"type": "text", "text": "Three", "cache_control": MARK},
    ]
    use = {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "6:40", "cache_control": MARK}
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    await ask(client, "/v1/messages", model=model, max_tokens=64, system=system, messages=turns, tools=[tool("tide")])
    sent = upstream.seen[0].json
    if model == "claude" or "anthropic_version" in sent:
        assert [block.get("cache_control") for block in sent["system"]] == [MARK, None, MARK]
        assert sent["messages"][-1]["content"][-1]["cache_control"] == MARK
    else:  # Converse has points after blocks
        assert [next(iter(block)) for block in sent["system"]] == ["text", "cachePoint", "text", "text", "cachePoint"]
        assert [next(iter(block)) for block in sent["messages"][-1]["content"]] == ["toolResult", "cachePoint"]


@pytest.mark.parametrize("model", ["m1", "claude", "gemini"])
async def test_tools_of_an_input_item_reach_every_upstream(client: Client, upstream: FakeUpstream, model: str) -> None:
    """https://github.com/NVIDIA-NeMo/Switchyard/issues/515"""
    space = {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "run"}]}
    tools = [{"type": "custom", "name": "exec"}, {"type": "function", "name": "wait"}, space]
    items = [
        {"type": "additional_tools", "role": "developer", "tools": tools},
        {"role": "user", "content": "Run the tests"},
    ]
    await ask(client, "/v1/responses", model=model, input=items)
    sent = json.dumps(upstream.seen[0].json)
    for name in ("exec", "wait", "mcp__run"):
        assert f'"name": "{name}"' in sent


async def test_patch_comes_back_as_raw_text_and_returns(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/caozhiyuan/copilot-api/issues/242"""
    call = fragment(json.dumps({"input": PATCH}), index=0, id="call_1", type="function", name="apply_patch")
    upstream.enqueue(
        Reply.stream([call, chunk(finish="tool_calls"), COUNT]), Reply.stream([chunk({"content": "Done"}), END])
    )
    lark = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}
    tools = [{"type": "custom", "name": "apply_patch", "description": "Edit files.", "format": lark}]
    first = {"role": "user", "content": "Add a file"}
    _, text = await ask(client, "/v1/responses", model="m1", input=[first], tools=tools, stream=True)
    events = events_of(text)
    [item] = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", PATCH)
    deltas = [one["delta"] for one in events if one["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == PATCH
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Success"}
    await ask(client, "/v1/responses", model="m1", input=[first, item, output], tools=tools, stream=True)
    _, assistant, result = upstream.seen[1].json["messages"]
    [again] = assistant["tool_calls"]
    assert json.loads(again["function"]["arguments"]) == {"input": PATCH}
    assert (result["tool_call_id"], result["content"]) == ("call_1", "Success")


async def test_compaction_has_exactly_one_item(client: Client, upstream: FakeUpstream) -> None:
    """https://github.com/Soju06/codex-lb/issues/971"""
    upstream.enqueue(Reply.stream([chunk({"reasoning_content": "Hm."}), chunk({"content": "Summary"}), END, COUNT]))
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    response, text = await ask(client, "/v1/responses", model="m1", input=items, stream=True)
    assert response.status == 200, text
    events = events_of(text)
    assert [one["item"]["type"] for one in events if one["type"] == "response.output_item.done"] == ["compaction"]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["compaction"]


@pytest.mark.parametrize("path", ["/responses", "/v1/responses", "/openai/v1/responses"])
async def test_websocket_is_opened_or_refused_with_426(client: Client, gateway: Gateway, path: str) -> None:
    """https://github.com/openai/codex/issues/43353: after any other status, Codex tries again for seconds."""
    headers = {**client.headers, **HANDSHAKE}
    async with client.request("GET", path, headers=headers) as response:
        assert (response.status, response.headers["Connection"]) == (426, "close")
    server = gateway.settings.server
    websocket = structs.replace(server.websocket, responses=True)
    gateway.settings = structs.replace(gateway.settings, server=structs.replace(server, websocket=websocket))
    async with client.request("GET", path, headers=headers) as response:
        assert (response.status, response.headers["Upgrade"]) == (101, "websocket")


async def test_usage_that_comes_at_the_end_is_told_at_the_start_as_an_estimate(
    client: Client, upstream: FakeUpstream
) -> None:
    """https://github.com/BerriAI/litellm/issues/41406"""
    events = await messages(client, upstream, chunk({"content": "Hello"}), END, COUNT)
    start, end = events[0]["message"]["usage"], events[-2]["usage"]
    assert start["input_tokens"] > 0
    assert (end["input_tokens"], end["output_tokens"]) == (17, 2)

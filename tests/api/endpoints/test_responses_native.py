"""The Responses API at upstreams that have it: forwarded, passed on, counted, and cut honestly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgspec
import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO
from tests.api.endpoints.test_responses_stream import events_of, types_of
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/responses"
USAGE = {
    "input_tokens": 17,
    "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 26,
}
TOOLS = [
    {"type": "function", "name": "tide", "strict": False},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
    {"type": "namespace", "name": "n", "tools": []},
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_of_somebody"]},
]
REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA-opaque"}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
}
CALL = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "c1", "name": "tide"}
CALL["arguments"] = '{"a":1}'


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, other: FakeUpstream) -> Settings:
    """m1 on a server with the dialect, `mixed` there and, after it, on one without it."""
    key = "sk-upstream-canary-0123456789"
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": key, "responses": True}
    plain = {"plugin": "openai", "base_url": other.base_url, "api_key": key}
    few = {**up, "responses_fields": ["metadata"], "responses_tools": []}
    price = {"input": 1, "output": 2}
    model = {"provider": "up", "model": "upstream-m1", "price": price, "retries": 0}
    targets = [{"provider": "up", "model": "first"}, {"provider": "plain", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": up, "plain": plain, "few": few},
            "groups": {"default": {}},
            "models": {
                "m1": model,
                "few": {**model, "provider": "few"},
                "mixed": {"targets": targets, "price": price, "continue_cut": True, "strategy": "in_order"},
            },
        },
        demo=True,
    )


def response(status: str, output: list[Any], **fields: Any) -> dict[str, Any]:
    """The upstream's response object."""
    return {
        "id": "resp_upstream", "object": "response", "created_at": 1, "status": status, "model": "upstream-m1-2026",
        "output": output, "error": None, "incomplete_details": None, "store": False, "usage": None,
        "x_future_field": {"a": [1]}, **fields,
    }  # fmt: skip


def stream_events(*, last: str = "completed", **fields: Any) -> list[dict[str, Any]]:
    """The events of an answer with reasoning, text and a call."""
    place = {"output_index": 1, "item_id": "msg_1", "content_index": 0}
    output = [REASONING, MESSAGE, CALL]
    bare: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress", [])},
        {"type": "response.in_progress", "response": response("in_progress", [])},
        {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "encrypted_content": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
        {"type": "response.output_item.added", "output_index": 1, "item": {**MESSAGE, "content": []}},
        {
            "type": "response.content_part.added",
            **place,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        {"type": "response.output_text.delta", **place, "delta": "Hel", "obfuscation": "x"},
        {"type": "response.output_text.delta", **place, "delta": "lo"},
        {"type": "response.output_text.done", **place, "text": "Hello"},
        {"type": "response.output_item.done", "output_index": 1, "item": MESSAGE},
        {"type": "response.output_item.added", "output_index": 2, "item": {**CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "item_id": "fc_1", "delta": '{"a":1}'},
        {"type": "response.output_item.done", "output_index": 2, "item": CALL},
        {"type": "response.future_event", "a": {"b": 1}},
        {"type": f"response.{last}", "response": response(last, output, usage=USAGE, **fields)},
    ]
    return [{"type": event["type"], "sequence_number": number, **event} for number, event in enumerate(bare)]


def frame(event: dict[str, Any]) -> bytes:
    """An event as OpenAI writes it."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def streamed(events: list[dict[str, Any]], end: Literal["whole", "cut"] = "whole") -> Reply:
    """A stream of them."""
    return Reply(headers={"Content-Type": "text/event-stream"}, frames=list(map(frame, events)), end=end)


async def stream(client: Client, **fields: Any) -> tuple[Any, str, bool]:
    """A streamed call: the response, its text, and whether it broke off."""
    text, failure = b"", False
    document = {"model": "m1", "input": "Hi", "stream": True, **fields}
    async with client.request("POST", PATH, json=document) as got:
        try:
            async for part in got.content.iter_any():
                text += part
        except aiohttp.ClientError:
            failure = True
    return got, text.decode(), failure


async def test_request_is_forwarded_with_our_model_and_nothing_stored(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    items = [{"role": "user", "content": "Hi"}, REASONING, CALL]
    sent = {
        "model": "m1", "input": items, "tools": TOOLS, "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto", "effort": "low"}, "store": True,
        "max_output_tokens": 100, "metadata": {"a": "b"},
        "unknown_field": 1, "client_metadata": {"session_id": "s"}, "prompt_cache_key": "k",
    }  # fmt: skip
    async with client.request("POST", PATH, json=sent) as got:
        body = await got.json()
    assert upstream.seen[0].path.endswith("/responses")
    assert upstream.seen[0].json == {
        "model": "upstream-m1", "input": items, "tools": TOOLS[:4], "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto", "effort": "low"}, "store": False,
        "max_output_tokens": 100, "max_tool_calls": 10, "metadata": {"a": "b"}, "prompt_cache_key": "k",
    }  # fmt: skip
    assert got.headers["x-gateway-dropped-params"] == "unknown_field,client_metadata,tools[file_search]"
    assert body["id"].startswith("resp_0")
    assert (body["model"], body["store"], body["output"], body["x_future_field"]) == (
        "m1",
        False,
        [MESSAGE],
        {"a": [1]},
    )
    assert body["usage"] == USAGE


@pytest.mark.parametrize("streams", [False, True])
async def test_members_that_an_upstream_leaves_out_are_added(
    client: Client, upstream: FakeUpstream, streams: bool
) -> None:
    """llama.cpp writes a few of them only, and clients read what the standard demands."""
    few = {"id": "resp_1", "status": "completed", "model": "x", "output": [MESSAGE], "usage": USAGE}
    sent = {"temperature": 0.5, "metadata": {"a": "b"}, "instructions": "Be brief."}
    if streams:
        begun = {**few, "status": "in_progress", "output": [], "usage": None}
        states = [("response.created", begun), ("response.completed", few)]
        events = [
            {"type": name, "sequence_number": number, "response": document}
            for number, (name, document) in enumerate(states)
        ]
        upstream.enqueue(streamed(events))
        _, text, _ = await stream(client, **sent)
        found = [json.loads(line[6:])["response"] for line in text.split("\n") if line.startswith("data: ")]
    else:
        upstream.enqueue(Reply.json(few))
        async with client.request("POST", PATH, json={"model": "m1", "input": "Hi", **sent}) as got:
            found = [await got.json()]
    for one in found:
        assert one.items() >= {"object": "response", "error": None, "incomplete_details": None}.items()
        assert one.items() >= {**sent, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}.items()
        assert one["created_at"] > 0
    assert found[-1]["output"] == [MESSAGE]


async def test_events_are_passed_on_with_our_id_and_model(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(streamed(stream_events()))
    _, text, failure = await stream(client)
    assert not failure
    sent, got = stream_events(), events_of(text)
    assert [event["type"] for event in got] == [event["type"] for event in sent]
    states = {"response.created", "response.in_progress", "response.completed"}
    frames = [one + "\n\n" for one in text.split("\n\n") if one]
    assert [one for one, event in zip(frames, got, strict=True) if event["type"] not in states] == [
        frame(event).decode() for event in sent if event["type"] not in states
    ]
    responses = [event["response"] for event in got if event["type"] in states]
    assert {(one["id"], one["model"]) for one in responses} == {(responses[0]["id"], "m1")}
    assert responses[-1]["usage"] == USAGE
    assert responses[-1]["output"] == [REASONING, MESSAGE, CALL]


async def test_usage_of_the_upstream_is_charged(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(streamed(stream_events()))
    got, _, _ = await stream(client)
    line = await until(lambda: last_line(ledger, "acme", got.headers["x-request-id"]))
    usage = {name: line.meta["usage"].get(name, 0) for name in ("in_text", "in_cached", "out_text", "out_reasoning")}
    assert usage == {"in_text": 12, "in_cached": 5, "out_text": 6, "out_reasoning": 3}


async def test_numbers_of_an_upstream_that_counts_otherwise_are_replaced(
    client: Client, upstream: FakeUpstream
) -> None:
    events = stream_events()
    upstream.enqueue(streamed([{**event, "sequence_number": event["sequence_number"] + 10} for event in events]))
    _, text, _ = await stream(client)
    assert len(events_of(text)) == len(events)


@pytest.mark.parametrize("taken", range(len(stream_events())))
async def test_stream_that_is_cut_never_completes_and_is_charged_for_what_it_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, taken: int
) -> None:
    upstream.enqueue(streamed(stream_events()[:taken], end="cut"))
    got, text, failure = await stream(client)
    if taken <= 2:  # nothing but a beginning, which the gateway keeps: another target could be tried
        assert got.status == 502
        return
    types = types_of(text)
    assert types[-1] == "failed"
    assert "completed" not in types
    assert failure
    line = await until(lambda: last_line(ledger, "acme", got.headers["x-request-id"]))
    delivered = "".join(event.get("delta", "") for event in events_of(text))
    assert line.meta.get("usage", {}).get("out_text", 0) == -(-len(delivered) // 4)


@pytest.mark.parametrize(
    "failure",
    [
        {"type": "response.failed", "response": response("failed", [], error={"code": "server_error", "message": "x"})},
        {"type": "error", "code": "server_error", "message": "no", "param": None},
        {"type": "error", "error": {"code": "server_error", "message": "no"}},
    ],
    ids=["failed", "error", "nested"],
)
@pytest.mark.parametrize("taken", [0, 2, 7])
async def test_failure_of_the_upstream_fails_the_response(
    client: Client, upstream: FakeUpstream, taken: int, failure: dict[str, Any]
) -> None:
    upstream.enqueue(streamed([*stream_events()[:taken], failure]))
    got, text, _ = await stream(client)
    if taken <= 2:
        assert got.status == 502
        return
    last = events_of(text)[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert last["response"]["model"] == "m1"


async def test_early_failure_is_served_by_the_next_target_in_its_own_dialect(
    client: Client, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    failed = {"type": "response.failed", "response": response("failed", [], error={"code": "server_error"})}
    upstream.enqueue(streamed([*stream_events()[:2], failed]))
    other.enqueue(Reply.stream(HELLO))
    got, text, failure = await stream(client, model="mixed", tools=TOOLS)
    assert not failure
    assert types_of(text)[-1] == "completed"
    assert other.seen[0].path.endswith("/chat/completions")
    named = "tools[file_search],tools[namespace],tools[web_search]"
    assert got.headers["x-gateway-dropped-params"] == named


async def test_cut_answer_of_the_dialect_is_finished_by_a_target_of_another_while_its_text_is_open(
    client: Client, upstream: FakeUpstream, other: FakeUpstream
) -> None:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    rest = Reply.stream([{"choices": [{"index": 0, "delta": {"content": " there."}}]}, end])
    for events, last, asked in ((8, "completed", 1), (9, "failed", 1)):
        upstream.enqueue(streamed(stream_events()[:events], end="cut"))
        if last == "completed":
            other.enqueue(rest)
        _, text, _ = await stream(client, model="mixed")
        assert types_of(text)[-1] == last
        assert ("Hello there." in text) is (last == "completed")
        assert len(other.seen) == asked


async def test_what_the_configuration_does_not_name_is_left_out(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    document = {"model": "few", "input": "Hi", "tools": TOOLS[3:], "user": "u", "metadata": {"a": "b"}}
    async with client.request("POST", PATH, json=document) as got:
        assert got.headers["x-gateway-dropped-params"] == "user,tools[file_search],tools[web_search]"
    assert upstream.seen[0].json == {
        "model": "upstream-m1",
        "input": "Hi",
        "metadata": {"a": "b"},
        "store": False,
        "max_output_tokens": upstream.seen[0].json["max_output_tokens"],
    }


async def test_choice_of_a_tool_that_the_upstream_lacks_is_refused(client: Client, upstream: FakeUpstream) -> None:
    for document in (
        {"model": "m1", "tools": TOOLS, "tool_choice": {"type": "file_search"}},
        {"model": "few", "tools": TOOLS, "tool_choice": {"type": "web_search"}},
    ):
        async with client.request("POST", PATH, json={"input": "Hi", **document}) as got:
            assert (await got.json())["error"]["param"] == "tool_choice"
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    document = {"model": "m1", "input": "Hi", "tools": TOOLS, "tool_choice": {"type": "web_search"}}
    async with client.request("POST", PATH, json=document) as got:
        assert got.status == 200


async def test_tools_in_an_item_are_checked_like_others(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    items = [{"type": "additional_tools", "role": "developer", "tools": TOOLS}, {"role": "user", "content": "Hi"}]
    async with client.request("POST", PATH, json={"model": "m1", "input": items}) as got:
        assert got.headers["x-gateway-dropped-params"] == "tools[file_search]"
    assert "vs_of_somebody" not in json.dumps(upstream.seen[0].json)


async def test_incomplete_answer_keeps_its_reason(client: Client, upstream: FakeUpstream) -> None:
    details = {"reason": "max_output_tokens"}
    upstream.enqueue(streamed(stream_events(last="incomplete", incomplete_details=details)))
    _, text, _ = await stream(client)
    last = events_of(text)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == details


async def test_server_that_does_not_stream_answers_with_one_event(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    _, text, _ = await stream(client)
    assert types_of(text) == ["completed"]


async def test_reasoning_of_another_vendor_is_not_sent(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    ours = {**REASONING, "encrypted_content": "gw1.e30="}
    async with client.request(
        "POST", PATH, json={"model": "m1", "input": [{"role": "user", "content": "Hi"}, ours, REASONING]}
    ) as got:
        assert got.status == 200
    assert upstream.seen[0].json["input"] == [{"role": "user", "content": "Hi"}, REASONING]


async def test_forbidden_names_never_reach_an_upstream_of_the_dialect(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    evil: dict[str, Any] = {"api_base": "https://evil.example", "apiKey": "https://evil.example"}
    part = {"type": "input_text", "text": "Hi", **evil}
    document: dict[str, Any] = {
        "model": "m1",
        "input": [{"role": "user", "content": [part], **evil}],
        "reasoning": {"effort": "low", **evil},
        "text": {"format": {"type": "text"}, **evil},
        "prompt_cache_options": {"mode": "implicit", **evil},
        **evil,
    }
    async with client.request("POST", PATH, json=document) as got:
        assert got.status == 200
    assert "evil.example" not in upstream.seen[0].body.decode()
    assert upstream.seen[0].json["model"] == "upstream-m1"


async def test_other_model_in_the_query_or_the_body_is_not_sent(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(response("completed", [MESSAGE], usage=USAGE)))
    document = {"model": "m1", "input": "Hi", "models": ["dear"], "service_tier": "priority", "store": True}
    async with client.request("POST", f"{PATH}?model=dear", json=document) as got:
        assert got.status == 200
        assert got.headers["x-gateway-dropped-params"] == "models,service_tier"
    sent = upstream.seen[0].json
    assert sent["model"] == "upstream-m1"
    assert "models" not in sent
    assert "service_tier" not in sent  # the model has no price for it

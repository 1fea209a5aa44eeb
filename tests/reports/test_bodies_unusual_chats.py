"""Chat answers that are not quite of their dialect's shape: the upstream charges for them, so they are delivered.

- https://github.com/BerriAI/litellm/pull/27045, https://github.com/QuantumNous/new-api/issues/5230: servers that stream
  although `stream` is false.
- https://github.com/mistralai/mistral-vibe/pull/619: servers that answer with a document where a stream was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.sse import DONE
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.ledger_lines import last_line
from tests.polling import until
from tests.reports.dialects import ANSWERS
from tests.reports.endpoints import BODIES, CHAT, post, settings_for

TEXT = "Well."
ANTHROPIC, GEMINI, BEDROCK = ANSWERS["claude"], ANSWERS["gemini"], ANSWERS["bedrock"]
OPENAI = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
}
COHERE = {
    "id": "c1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": TEXT}]},
    "usage": {"tokens": {"input_tokens": 10.0, "output_tokens": 2.0}},
}
WHOLE = {"openai": OPENAI, "anthropic": ANTHROPIC, "gemini": GEMINI, "bedrock": BEDROCK, "cohere": COHERE}
#: Where each dialect has its usage and its finish reason.
USAGE = {
    "openai": ("usage",),
    "anthropic": ("usage",),
    "gemini": ("usageMetadata",),
    "bedrock": ("usage",),
    "cohere": ("usage",),
}
FINISH = {
    "openai": ("choices", 0, "finish_reason"),
    "anthropic": ("stop_reason",),
    "gemini": ("candidates", 0, "finishReason"),
    "bedrock": ("stopReason",),
    "cohere": ("finish_reason",),
}
ABSENT = object()
#: What stands in place of a usage, and of a finish reason.
USAGES: dict[str, Any] = {"absent": ABSENT, "null": None, "text": "12", "list": [1], "empty": {}, "number": 7}
FINISHES: dict[str, Any] = {"absent": ABSENT, "null": None, "number": 1, "unknown": "over"}


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the document with another value in one place."""
    copy = json.loads(json.dumps(document))
    node = copy
    for step in path[:-1]:
        node = node[step]
    if value is ABSENT:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return copy


def with_more(text: bytes) -> Callable[[Any], bytes]:
    return lambda document: b'{"x":' + text + b"," + msgspec.json.encode(document)[1:]


#: JSON as it should not be, around a right answer.
TEXTS: dict[str, Callable[[Any], bytes]] = {
    "byte order mark": lambda document: b"\xef\xbb\xbf" + msgspec.json.encode(document),
    "NaN": with_more(b"NaN"),
    "Infinity": with_more(b"-Infinity"),
    "a lone surrogate": with_more(b'"\\ud83d"'),
    "bytes that are no UTF-8": with_more(b'"\xff"'),
}
EVENTS: dict[str, list[bytes]] = {
    "openai": [
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"We"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"ll."},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}\n\n',
        DONE,
    ],
    "anthropic": [
        b'event: message_start\ndata: {"type":"message_start",'
        b'"message":{"content":[],"usage":{"input_tokens":10}}}\n\n',
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        b'"content_block":{"type":"text","text":""}}\n\n',
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"Well."}}\n\n',
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":2}}\n\n',
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ],
    "gemini": [
        b'data: {"candidates":[{"content":{"parts":[{"text":"We"}]}}]}\n\n',
        b'data: {"candidates":[{"content":{"parts":[{"text":"ll."}]},"finishReason":"STOP"}],'
        b'"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":2}}\n\n',
    ],
    "cohere": [
        b'data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Well."}}}}\n\n',
        b'data: {"type":"message-end","delta":{"finish_reason":"COMPLETE",'
        b'"usage":{"tokens":{"input_tokens":10,"output_tokens":2}}}}\n\n',
    ],
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model for each dialect."""
    return settings_for(upstream, tmp_path)


async def said(client: Client, ledger: Ledger, dialect: str, **fields: Any) -> tuple[Any, Any]:
    """The message of an answer that is delivered, and the line of its charge, which the hold covers."""
    response, content = await post(client, CHAT, body={"model": f"chat-{dialect}", **BODIES[CHAT], **fields})
    assert response.status == 200, content
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert 0 < -line.amount <= line.meta["hold"]
    return json.loads(content)["choices"][0], line


async def unusable(client: Client, accounts: Accounts, dialect: str) -> None:
    """The answer is refused, and costs nothing."""
    response, content = await post(client, CHAT, body={"model": f"chat-{dialect}", **BODIES[CHAT]})
    assert (response.status, json.loads(content)["error"]["code"]) == (502, "upstream_invalid_response")
    account = await settled(accounts)
    assert (account.balance, account.held) == (10 * NANO, 0)


@pytest.mark.parametrize("fault", TEXTS)
@pytest.mark.parametrize("dialect", WHOLE)
async def test_answer_in_json_that_is_not_quite_json_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str, fault: str
) -> None:
    body = TEXTS[fault](WHOLE[dialect])
    upstream.enqueue(Reply(headers={"Content-Type": "application/json"}, body=body))
    choice, line = await said(client, ledger, dialect)
    assert (choice["message"]["content"], line.amount) == (TEXT, -14_000)  # 10 tokens at 1, 2 at 2, per million


@pytest.mark.parametrize("fault", USAGES)
@pytest.mark.parametrize("dialect", WHOLE)
async def test_answer_without_a_valid_usage_is_delivered_and_estimated(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str, fault: str
) -> None:
    upstream.enqueue(Reply.json(changed(WHOLE[dialect], USAGE[dialect], USAGES[fault])))
    choice, line = await said(client, ledger, dialect)
    assert (choice["message"]["content"], line.meta["estimated"]) == (TEXT, True)


@pytest.mark.parametrize("fault", FINISHES)
@pytest.mark.parametrize("dialect", WHOLE)
async def test_answer_without_a_known_finish_reason_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str, fault: str
) -> None:
    upstream.enqueue(Reply.json(changed(WHOLE[dialect], FINISH[dialect], FINISHES[fault])))
    choice, line = await said(client, ledger, dialect)
    assert (choice["message"]["content"], choice["finish_reason"], line.amount) == (TEXT, "stop", -14_000)


@pytest.mark.parametrize("media_type", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("dialect", EVENTS)
async def test_stream_that_was_not_asked_for_is_delivered_as_a_document(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str, media_type: str
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": media_type}, frames=EVENTS[dialect]))
    choice, line = await said(client, ledger, dialect)
    assert (choice["message"]["content"], choice["finish_reason"], line.amount) == (TEXT, "stop", -14_000)


@pytest.mark.parametrize("dialect", EVENTS)
async def test_stream_that_was_not_asked_for_and_has_no_end_is_no_answer(
    client: Client, upstream: FakeUpstream, dialect: str
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=EVENTS[dialect][:1]))
    response, _ = await post(client, CHAT, body={"model": f"chat-{dialect}", **BODIES[CHAT]})
    assert response.status == 502


@pytest.mark.parametrize("dialect", WHOLE)
async def test_document_where_a_stream_was_asked_for_is_streamed(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str
) -> None:
    upstream.enqueue(Reply.json(WHOLE[dialect]))
    response, content = await post(client, CHAT, body={"model": f"chat-{dialect}", **BODIES[CHAT], "stream": True})
    assert (response.status, content.count(b'"Well."'), content.count(b'"stop"')) == (200, 1, 1), content
    assert content.endswith(DONE)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -14_000


async def test_frames_of_gemini_in_an_array_are_an_answer(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    frames = [json.loads(frame[6:]) for frame in EVENTS["gemini"]]
    upstream.enqueue(Reply.json(frames), Reply.json(frames))
    choice, line = await said(client, ledger, "gemini")
    assert (choice["message"]["content"], line.amount) == (TEXT, -14_000)
    response, content = await post(client, CHAT, body={"model": "chat-gemini", **BODIES[CHAT], "stream": True})
    assert response.status == 200 and b'"We"' in content and b'"ll."' in content and content.endswith(DONE)


ODD_MESSAGES: list[tuple[str, Any]] = [
    ("openai", {**OPENAI, "choices": OPENAI["choices"][0]}),  # type: ignore[index]
    ("openai", changed(OPENAI, ("choices", 0, "message", "content"), [{"type": "text", "text": TEXT}])),
    ("openai", changed(OPENAI, ("choices", 0, "message", "content"), {"text": TEXT})),
    ("openai", changed(OPENAI, ("choices", 0, "index"), "0")),
    ("openai", changed(OPENAI, ("choices", 0, "index"), ABSENT)),
    ("openai", {**OPENAI, "id": None, "object": None, "created": "now", "model": 5, "system_fingerprint": 5}),
    ("openai", {name: OPENAI[name] for name in ("choices", "usage")}),
    ("anthropic", {**ANTHROPIC, "content": TEXT}),
    ("anthropic", {**ANTHROPIC, "content": {"type": "text", "text": TEXT}}),
    ("anthropic", {**ANTHROPIC, "content": [{"text": TEXT}]}),
    (
        "anthropic",
        {**ANTHROPIC, "content": [{"type": "text", "text": TEXT, "thinking": None, "id": None, "name": None}]},
    ),
    ("anthropic", {**ANTHROPIC, "content": [5, {"type": "text", "text": TEXT, "citations": 7}]}),
    ("anthropic", {**ANTHROPIC, "id": 1, "type": None, "stop_details": "none"}),
    ("gemini", changed(GEMINI, ("candidates", 0, "index"), "0")),
    ("gemini", changed(GEMINI, ("candidates", 0, "content", "parts", 0, "thought"), "false")),
    ("gemini", changed(GEMINI, ("candidates", 0, "content", "parts"), {"text": TEXT})),
    ("gemini", {**GEMINI, "candidates": GEMINI["candidates"][0]}),
    ("gemini", {**GEMINI, "promptFeedback": "none"}),
    ("bedrock", {**BEDROCK, "serviceTier": "default"}),
    ("bedrock", changed(BEDROCK, ("output", "message", "content"), {"text": TEXT})),
    ("bedrock", changed(BEDROCK, ("output", "message", "content"), [{"text": TEXT, "toolUse": 5}])),
    ("cohere", changed(COHERE, ("message", "content"), TEXT)),
    ("cohere", changed(COHERE, ("message", "content"), {"text": TEXT})),
    ("cohere", changed(COHERE, ("message", "tool_plan"), 5)),
    ("cohere", {**COHERE, "logprobs": "none"}),
]


@pytest.mark.parametrize(("dialect", "document"), ODD_MESSAGES)
async def test_answer_with_an_odd_field_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str, document: Any
) -> None:
    upstream.enqueue(Reply.json(document))
    choice, line = await said(client, ledger, dialect)
    assert (choice["message"]["content"], line.amount) == (TEXT, -14_000)


@pytest.mark.parametrize(
    ("dialect", "path", "calls"),
    [
        (
            "openai",
            ("choices", 0, "message"),
            {"tool_calls": {"id": "c1", "function": {"name": "tide", "arguments": {"at": 6}}}},
        ),
        (
            "anthropic",
            ("content",),
            [{"type": "tool_use", "id": "c1", "name": "tide", "input": '{"at": 6}', "text": None}],
        ),
        (
            "bedrock",
            ("output", "message", "content"),
            [{"toolUse": {"name": "tide", "input": {"at": 6}}, "text": None}],
        ),
    ],
)
async def test_call_in_an_odd_shape_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, dialect: str, path: tuple[Any, ...], calls: Any
) -> None:
    upstream.enqueue(Reply.json(changed(WHOLE[dialect], path, calls)))
    choice, _ = await said(client, ledger, dialect)
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("tide", {"at": 6})
    assert call["id"]


@pytest.mark.parametrize("name", ["audio", "images"])
async def test_answer_of_media_alone_without_a_finish_reason_is_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, name: str
) -> None:
    media: Any = (
        {"id": "a", "data": "AAAA", "transcript": "", "expires_at": 1}
        if name == "audio"
        else [{"image_url": {"url": "x"}}]
    )
    message = {"role": "assistant", "content": None, name: media}
    choice = {"index": 0, "message": message, "finish_reason": None}
    upstream.enqueue(Reply.json({**OPENAI, "choices": [choice]}))
    delivered, _ = await said(client, ledger, "openai")
    assert (delivered["message"][name], delivered["finish_reason"]) == (media, "stop")


NO_ANSWERS: tuple[Any, ...] = ({}, [], "Well.", 5, None)


@pytest.mark.parametrize(
    ("dialect", "document"),
    [
        *((dialect, document) for dialect in WHOLE for document in NO_ANSWERS),
        ("openai", {**OPENAI, "choices": []}),
        ("openai", {**OPENAI, "choices": None}),
        ("anthropic", {**ANTHROPIC, "content": None}),
        ("gemini", {**GEMINI, "candidates": []}),
        ("gemini", {**GEMINI, "candidates": [{}]}),
        ("bedrock", {**BEDROCK, "output": None}),
        ("cohere", {**COHERE, "message": "Well."}),
    ],
)
async def test_answer_without_any_content_is_refused_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, dialect: str, document: Any
) -> None:
    upstream.enqueue(Reply.json(document))
    await unusable(client, accounts, dialect)


@pytest.mark.parametrize("start", [{"id": "c1", "name": "tide", "input": {"at": 6}}, {"id": "c1", "name": "tide"}])
@pytest.mark.parametrize("end", ["message_delta", "message_stop", "after", "twice"])
async def test_arguments_that_came_with_the_start_of_a_call_need_no_stop_of_it(
    client: Client, upstream: FakeUpstream, ledger: Ledger, start: dict[str, Any], end: str
) -> None:
    begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", **start}}
    finish = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}
    stop = {"type": "content_block_stop", "index": 0}
    last = {"type": "message_stop"}
    frames = {
        "message_delta": [begin, finish, last],
        "message_stop": [begin, last],
        "after": [finish, begin, last],
        "twice": [begin, finish, stop, last],
    }[end]
    upstream.enqueue(Reply.stream([{"type": "message_start", "message": {"content": []}}, *frames], done=False))
    response, content = await post(client, CHAT, body={"model": "chat-anthropic", **BODIES[CHAT], "stream": True})
    assert response.status == 200
    chunks = [json.loads(line[6:]) for line in content.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls") or ()]
    arguments = "".join(call["function"].get("arguments", "") for call in calls)
    assert json.loads(arguments) == start.get("input", {})
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]


NULLS = {"text": None, "thinking": None, "signature": None, "partial_json": None, "stop_reason": None}


async def test_events_of_anthropic_with_nulls_for_absence_are_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    block = {"type": "text", "text": None, "thinking": None, "data": None, "id": None, "name": None}
    frames = [
        {"type": "message_start", "index": None, "message": {"content": [], "usage": {"input_tokens": 10}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {**NULLS, "type": "text_delta", "text": TEXT}},
        {"type": "content_block_delta", "index": 1, "delta": {**NULLS, "type": "thinking_delta", "thinking": "Hm"}},
        {"type": "content_block_stop", "index": 0, "usage": "none"},
        {"type": "message_delta", "delta": {**NULLS, "stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    upstream.enqueue(Reply.stream(frames, done=False))
    response, content = await post(client, CHAT, body={"model": "chat-anthropic", **BODIES[CHAT], "stream": True})
    assert response.status == 200 and content.endswith(DONE), content
    assert b'"content":"Well."' in content and b'"reasoning_content":"Hm"' in content

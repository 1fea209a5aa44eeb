"""Joins the events of a stream to the whole answer that they spell, and finds what is out of order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.testing.servers.answers import Answer, read_whole
from gateway.testing.servers.situations import Body

LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})


class StreamFault(Exception):
    """The events do not spell an answer; the message says why."""


def read_stream(api: str, events: Sequence[Body], *, has_done: bool = False) -> tuple[Answer, list[str]]:
    """The answer, and what is wrong with the order of its events; a StreamFault if there is no answer.

    `has_done`: the end marker `[DONE]` came.
    """
    for event in events:
        if event.get("type") == "error" or ("error" in event and api != "responses"):
            raise StreamFault(f"the stream has an error: {str(event.get('error'))[:200]}")
    if not events:
        raise StreamFault("the stream has no event")
    document, faults = _JOINERS[api](events)
    if api == "chat" and not has_done:
        faults.append("the stream does not end with [DONE]")
    return read_whole(api, document), faults


def _responses(events: Sequence[Body]) -> tuple[Body, list[str]]:
    faults = []
    if events[0]["type"] != "response.created":
        faults.append(f"the first event is {events[0]['type']}, not response.created")
    numbers = [event["sequence_number"] for event in events]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        faults.append("sequence_number does not grow by one")
    last = events[-1]
    if last["type"] not in LAST:
        raise StreamFault(f"the last event is {last['type']}")
    document = last["response"]
    if last["type"] == "response.completed":
        faults += _differences(events, read_whole("responses", document))
    return document, faults


def _differences(events: Sequence[Body], answer: Answer) -> list[str]:
    """Where the pieces do not spell what the last event has."""
    texts = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    kind = "response.function_call_arguments.delta"
    arguments = "".join(event["delta"] for event in events if event["type"] == kind)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    faults = []
    if texts != answer.text:
        faults.append("the deltas of the text do not spell the text of the last event")
    if arguments != "".join(written for _, written in answer.calls):
        faults.append("the deltas of the arguments do not spell those of the last event")
    if done != answer.output:
        faults.append("the items that are done are not those of the last event")
    return faults


def _chat(events: Sequence[Body]) -> tuple[Body, list[str]]:
    message: Body = {"content": ""}
    calls: dict[int, Body] = {}
    finish, usage = [], None
    for event in events:
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for piece in delta.get("tool_calls") or ():
                _add_call(calls.setdefault(piece["index"], {"type": "function", "function": {}}), piece)
            finish += [choice["finish_reason"]] if choice.get("finish_reason") else []
    faults = [] if len({event["id"] for event in events}) == 1 else ["the chunks have several ids"]
    if len(finish) != 1:
        faults.append(f"{len(finish)} chunks have a finish_reason, not one")
    message["tool_calls"] = [calls[index] for index in sorted(calls)]
    choice = {"message": message, "finish_reason": finish[-1] if finish else None}
    return {"choices": [choice], "usage": usage or {"streamed": "without include_usage"}}, faults


def _add_call(call: Body, piece: Body) -> None:
    call["id"] = piece.get("id") or call.get("id", "")
    function, added = call["function"], piece.get("function") or {}
    for name in ("name", "arguments"):
        function[name] = function.get(name, "") + (added.get(name) or "")


def _messages(events: Sequence[Body]) -> tuple[Body, list[str]]:
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    if kinds[0] != "message_start" or kinds[-1] != "message_stop":
        raise StreamFault(f"the events go from {kinds[0]} to {kinds[-1]}, not from message_start to message_stop")
    document: Body = {**events[kinds.index("message_start")]["message"], "content": []}
    faults, opened, written = [], -1, ""
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            if opened >= 0 or event["index"] != len(document["content"]):
                faults.append(f"block {event['index']} begins out of order")
            opened, written = event["index"], ""
            document["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            if event["index"] != opened:
                raise StreamFault(f"a delta is for block {event['index']}, which is not open")
            written += _add_delta(document["content"][-1], event["delta"])
        elif kind == "content_block_stop":
            opened = -1
            if written:
                document["content"][-1]["input"] = _decoded(written)
        elif kind == "message_delta":
            document |= {"stop_reason": event["delta"]["stop_reason"], "usage": event["usage"]}
    return document, faults if opened < 0 else [*faults, f"block {opened} does not end"]


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        raise StreamFault("the pieces of a tool's input are no JSON") from None


def _add_delta(block: Body, delta: Body) -> str:
    """Add a piece to its block; a piece of a tool's input is returned."""
    if delta["type"] == "text_delta":
        block["text"] += delta["text"]
    return delta["partial_json"] if delta["type"] == "input_json_delta" else ""


def _gemini(events: Sequence[Body]) -> tuple[Body, list[str]]:
    parts: list[Any] = []
    finish, usage = [], None
    for event in events:
        usage = event.get("usageMetadata") or usage
        for candidate in event.get("candidates") or ():
            parts += (candidate.get("content") or {}).get("parts") or []
            finish += [candidate["finishReason"]] if candidate.get("finishReason") else []
    faults = [] if len(finish) == 1 else [f"{len(finish)} answers have a finishReason, not one"]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": finish[-1] if finish else None}
    return {"candidates": [candidate], "usageMetadata": usage}, faults


_JOINERS: Mapping[str, Callable[[Sequence[Body]], tuple[Body, list[str]]]] = {
    "responses": _responses,
    "chat": _chat,
    "messages": _messages,
    "gemini": _gemini,
}

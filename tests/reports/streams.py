"""Chunks of a scripted upstream, and what a client makes of the frames it gets."""

from __future__ import annotations

import json
from typing import Any

USAGE = {"prompt_tokens": 17, "completion_tokens": 2, "total_tokens": 19}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None) -> dict[str, Any]:
    """An upstream's chunk."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def fragment(arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk with a fragment of a tool call; `name` is the function's."""
    function: dict[str, Any] = {}
    if "name" in fields:
        function["name"] = fields.pop("name")
    if arguments is not None:
        function["arguments"] = arguments
    return chunk({"tool_calls": [{**fields, "function": function}]})


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON frames of a stream."""
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame.startswith("data: ")]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


def text_of(text: str) -> str:
    """The answer that a stream spells."""
    choices = [choice for document in documents(text) for choice in document.get("choices", [])]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def finishes(text: str) -> list[str]:
    """The finish reasons of a stream."""
    choices = [choice for document in documents(text) for choice in document.get("choices", [])]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def error_of(text: str) -> dict[str, Any]:
    """The error in the last frame."""
    error = documents(text)[-1]["error"]
    assert "[DONE]" not in text
    return dict(error)


def calls_of(text: str) -> list[tuple[str, str]]:
    """Name and arguments of each call, put together by index as the SDKs do; ids are there and differ."""
    calls: dict[int, dict[str, str]] = {}
    for document in documents(text):
        for choice in document["choices"]:
            for part in choice["delta"].get("tool_calls") or ():
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += part.get("id") or ""
                function = part.get("function") or {}
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
    assert list(calls) == list(range(len(calls)))
    ids = [call["id"] for call in calls.values()]
    assert all(ids) and len(set(ids)) == len(ids)
    return [(call["name"], call["arguments"]) for call in calls.values()]

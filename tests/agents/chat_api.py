"""Chat completions: requests to the scripted model, and its answers."""

from __future__ import annotations

import json
from typing import Any

from .scripted_model import Conversation, ModelReply, ToolOffer, Turn


def read(document: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request."""
    turns = []
    for message in document["messages"]:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        turns.append(Turn(message["role"], text))
    tools = [
        ToolOffer(tool["function"]["name"], tool["function"].get("parameters", {}))
        for tool in document.get("tools", [])
        if tool["type"] == "function"
    ]
    session = document.get("prompt_cache_key", "")
    return Conversation(document["model"], bool(document.get("stream")), turns, tools, session=session)


def whole(asked: Conversation, reply: ModelReply, number: int) -> dict[str, Any]:
    """A whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.tool:
        message["tool_calls"] = [_call(reply, number)]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.tool else "stop"}
    return _envelope(asked, "chat.completion", number) | {"choices": [choice], "usage": _usage(reply)}


def events(asked: Conversation, reply: ModelReply, number: int) -> list[tuple[str, str]]:
    """The events of a streamed answer."""
    head = _envelope(asked, "chat.completion.chunk", number)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.tool:
        deltas.append({"tool_calls": [{"index": 0, **_call(reply, number)}]})
    else:
        deltas += [{"content": piece} for piece in reply.text.splitlines(keepends=True)]
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    finish = "tool_calls" if reply.tool else "stop"
    chunks.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append(head | {"choices": [], "usage": _usage(reply)})
    return [("", json.dumps(chunk)) for chunk in chunks] + [("", "[DONE]")]


def _envelope(asked: Conversation, kind: str, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": asked.model}


def _call(reply: ModelReply, number: int) -> dict[str, Any]:
    function = {"name": reply.tool, "arguments": json.dumps(reply.arguments)}
    return {"id": f"call_{number:024d}", "type": "function", "function": function}


def _usage(reply: ModelReply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.tokens_in,
        "completion_tokens": reply.tokens_out,
        "total_tokens": reply.tokens_in + reply.tokens_out,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
    }

"""Anthropic's Messages: requests to the scripted model, and its answers."""

from __future__ import annotations

import json
from typing import Any

from .scripted_model import Conversation, ModelReply, ToolOffer, Turn


def read(document: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request."""
    turns = []
    for message in document["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "user" and any(block["type"] == "tool_result" for block in blocks):
            turns.append(Turn("tool"))
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        if message["role"] == "assistant" or text:
            turns.append(Turn(message["role"], text))
    tools = [ToolOffer(tool["name"], tool.get("input_schema", {})) for tool in document.get("tools", [])]
    return Conversation(document["model"], bool(document.get("stream")), turns, tools)


def whole(asked: Conversation, reply: ModelReply, number: int) -> dict[str, Any]:
    """A whole answer."""
    block = _tool(reply, number, reply.arguments) if reply.tool else {"type": "text", "text": reply.text}
    return _message(asked, reply, number) | {"content": [block], "stop_reason": _reason(reply), "usage": _usage(reply)}


def events(asked: Conversation, reply: ModelReply, number: int) -> list[tuple[str, str]]:
    """The events of a streamed answer."""
    begun = _message(asked, reply, number) | {"usage": _usage(reply) | {"output_tokens": 1}}
    block = _tool(reply, number, {}) if reply.tool else {"type": "text", "text": ""}
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": block},
    ]
    if reply.tool:
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
        found.append({"type": "content_block_delta", "index": 0, "delta": delta})
    else:
        for piece in reply.text.splitlines(keepends=True):
            found.append({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
    end = {"stop_reason": _reason(reply), "stop_sequence": None}
    found += [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": _usage(reply)},
        {"type": "message_stop"},
    ]
    return [(one["type"], json.dumps(one)) for one in found]


def _message(asked: Conversation, reply: ModelReply, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.model, "content": [],
        "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip


def _tool(reply: ModelReply, number: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number:020d}", "name": reply.tool, "input": arguments}


def _reason(reply: ModelReply) -> str:
    return "tool_use" if reply.tool else "end_turn"


def _usage(reply: ModelReply) -> dict[str, Any]:
    return {
        "input_tokens": reply.tokens_in - reply.cached,
        "cache_read_input_tokens": reply.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": reply.tokens_out,
    }

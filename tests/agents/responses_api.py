"""OpenAI's Responses: requests to the scripted model, and its answers."""

from __future__ import annotations

import json
from typing import Any

from .scripted_model import Conversation, ModelReply, ToolOffer, Turn

CALLS = ("function_call", "custom_tool_call")
OUTPUTS = ("function_call_output", "custom_tool_call_output")


def read(document: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request."""
    given = document["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    turns = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            turns.append(Turn(item["role"], text))
        elif kind in CALLS:
            turns.append(Turn("assistant"))
        elif kind in OUTPUTS:
            turns.append(Turn("tool", str(item["output"])))
    tools = [
        ToolOffer(tool["name"], tool.get("parameters") or {})
        for tool in document.get("tools", [])
        if tool["type"] == "function"
    ]
    session = document.get("prompt_cache_key", "")
    return Conversation(document["model"], bool(document.get("stream")), turns, tools, session=session)


def whole(asked: Conversation, reply: ModelReply, number: int) -> dict[str, Any]:
    """A whole answer."""
    return _response(asked, reply, number, "completed", [_item(reply, number, "completed")])


def events(asked: Conversation, reply: ModelReply, number: int) -> list[tuple[str, str]]:
    """The events of a streamed answer."""
    begun = _response(asked, reply, number, "in_progress", []) | {"usage": None}
    item = _item(reply, number, "completed")
    at: dict[str, Any] = {"item_id": item["id"], "output_index": 0}
    found: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": _begun(item)},
    ]
    if reply.tool:
        arguments = item["arguments"]
        found += [
            {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
            {"type": "response.function_call_arguments.done", **at, "arguments": arguments, "name": reply.tool},
        ]
    else:
        at |= {"content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        found.append({"type": "response.content_part.added", **at, "part": part})
        for piece in reply.text.splitlines(keepends=True):
            found.append({"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []})
        found += [
            {"type": "response.output_text.done", **at, "text": reply.text, "logprobs": []},
            {"type": "response.content_part.done", **at, "part": part | {"text": reply.text}},
        ]
    found += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole(asked, reply, number)},
    ]
    return [(one["type"], json.dumps(one | {"sequence_number": n})) for n, one in enumerate(found)]


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
    return item | empty | {"status": "in_progress"}


def _item(reply: ModelReply, number: int, status: str) -> dict[str, Any]:
    if reply.tool:
        call = {"call_id": f"call_{number:024d}", "name": reply.tool, "arguments": json.dumps(reply.arguments)}
        return {"id": f"fc_{number}", "type": "function_call", "status": status, **call}
    content = [{"type": "output_text", "text": reply.text, "annotations": []}]
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": status, "content": content}


def _response(
    asked: Conversation, reply: ModelReply, number: int, status: str, output: list[dict[str, Any]]
) -> dict[str, Any]:
    usage = {
        "input_tokens": reply.tokens_in,
        "input_tokens_details": {"cached_tokens": reply.cached},
        "output_tokens": reply.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.tokens_in + reply.tokens_out,
    }
    return {
        "id": f"resp_{number}", "object": "response", "created_at": 1, "status": status, "model": asked.model,
        "output": output, "usage": usage, "error": None, "incomplete_details": None, "instructions": None,
        "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "store": False,
    }  # fmt: skip

"""Gemini's generateContent: requests to the scripted model, and its answers."""

from __future__ import annotations

import json
from typing import Any

from .scripted_model import Conversation, ModelReply, ToolOffer, Turn

ROLES = {"model": "assistant"}


def read(document: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request."""
    turns = []
    for content in document["contents"]:
        parts = content["parts"]
        if any("functionResponse" in part for part in parts):
            turns.append(Turn("tool"))
            continue
        text = "".join(part.get("text", "") for part in parts)
        turns.append(Turn(ROLES.get(content.get("role", "user"), "user"), text))
    tools = [
        ToolOffer(tool["name"], tool.get("parametersJsonSchema") or tool.get("parameters") or {})
        for group in document.get("tools", [])
        for tool in group.get("functionDeclarations", [])
    ]
    model = path.partition("/models/")[2].partition(":")[0]
    return Conversation(model, ":stream" in path, turns, tools)


def whole(asked: Conversation, reply: ModelReply, number: int) -> dict[str, Any]:
    """A whole answer."""
    return _answer(asked, reply, number, [_part(reply)], finish="STOP")


def events(asked: Conversation, reply: ModelReply, number: int) -> list[tuple[str, str]]:
    """The events of a streamed answer."""
    pieces = [_part(reply)] if reply.tool else [{"text": one} for one in reply.text.splitlines(keepends=True)]
    found = [_answer(asked, reply, number, [part]) for part in pieces[:-1]]
    found.append(_answer(asked, reply, number, pieces[-1:], finish="STOP"))
    return [("", json.dumps(one)) for one in found]


def _part(reply: ModelReply) -> dict[str, Any]:
    return {"functionCall": {"name": reply.tool, "args": reply.arguments}} if reply.tool else {"text": reply.text}


def _answer(
    asked: Conversation, reply: ModelReply, number: int, parts: list[dict[str, Any]], *, finish: str = ""
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish:
        candidate["finishReason"] = finish
    usage = {
        "promptTokenCount": reply.tokens_in,
        "cachedContentTokenCount": reply.cached,
        "candidatesTokenCount": reply.tokens_out,
        "totalTokenCount": reply.tokens_in + reply.tokens_out,
    }
    return {
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": asked.model,
        "responseId": f"response-{number}",
    }

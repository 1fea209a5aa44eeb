"""Answers of Anthropic, Gemini and Bedrock, and the history that the gateway sent them."""

from __future__ import annotations

from typing import Any

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client

ANSWERS: dict[str, Any] = {
    "claude": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "Well."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 2},
    },
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Well."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12},
    },
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": "Well."}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12},
    },
}
MODELS = tuple(ANSWERS)

USER = {"role": "user", "content": "When is high water?"}


def call(id: str, arguments: str = "{}", name: str = "tide") -> dict[str, Any]:
    """An earlier call of a function."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def called(*calls: dict[str, Any]) -> dict[str, Any]:
    """The message with the calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: str, content: Any = "6:40") -> dict[str, Any]:
    """What a tool answered."""
    return {"role": "tool", "tool_call_id": id, "content": content}


async def sent(client: Client, upstream: FakeUpstream, model: str, *messages: dict[str, Any], **fields: Any) -> Any:
    """The body that the upstream got for these messages."""
    upstream.enqueue(Reply.json(ANSWERS[model]))
    response, answer = await client.chat(model=model, messages=list(messages), **fields)
    assert (response.status, answer["choices"][0]["message"]["content"]) == (200, "Well.")
    return upstream.seen[-1].json


def calls_in(body: Any) -> list[tuple[str, str, Any]]:
    """Id, name and input of each call in a body, in any of the dialects."""
    found = []
    for turn in body.get("messages") or body["contents"]:
        for block in turn.get("content") or turn["parts"]:
            if block.get("type") == "tool_use":
                found.append((block["id"], block["name"], block["input"]))
            elif one := block.get("functionCall"):
                found.append((one["id"], one["name"], one["args"]))
            elif one := block.get("toolUse"):
                found.append((one["toolUseId"], one["name"], one["input"]))
    return found


def results_in(body: Any) -> list[tuple[str, str]]:
    """The id of the call and the text of each result."""
    found = []
    for turn in body.get("messages") or body["contents"]:
        for block in turn.get("content") or turn["parts"]:
            if block.get("type") == "tool_result":
                content = block.get("content", "")
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                found.append((block["tool_use_id"], text))
            elif one := block.get("functionResponse"):
                found.append((one["id"], one["response"]["result"]))
            elif one := block.get("toolResult"):
                found.append((one["toolUseId"], "".join(part["text"] for part in one["content"])))
    return found
